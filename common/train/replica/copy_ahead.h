// Copies batches to a GPU before their step. The thread that loads a batch puts it into pinned
// memory and starts the copy on a separate stream. The step's stream waits for the copy on the
// device. Uses LibTorch's device-independent interface, so it needs no CUDA to build or link.
#pragma once

#include <c10/core/Stream.h>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

class CopyAhead {
 public:
  // Returns whether copies to this device can be asynchronous.
  static bool Helps(at::Device device) { return device.is_cuda(); }
  // Requires Helps(device).
  explicit CopyAhead(at::Device device);

  // Replaces the batch's tensors with tensors on the device, which the copies fill. Thread-safe.
  absl::Status Start(data::LoadedBatch* batch) const;
  // Orders later device work of the calling thread after the copies. Called once for each batch.
  absl::Status Finish(data::LoadedBatch* batch) const;

 private:
  const at::Device device_;
  const c10::Stream stream_;
};

}  // namespace muster
