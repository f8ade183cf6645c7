// Copies batches to a GPU before their step. The thread that loads a batch copies it to pinned
// memory, and starts the copy to the device on a separate stream. The stream of the step waits for
// that copy. The code uses LibTorch's device-independent interface, so it builds and links without
// CUDA.
#pragma once

#include <c10/core/Stream.h>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

class CopyAhead {
 public:
  // Returns true if copies to this device can be asynchronous.
  static bool Helps(at::Device device) { return device.is_cuda(); }
  // REQUIRES: Helps(device).
  explicit CopyAhead(at::Device device);

  // Starts the copies, and replaces the batch's tensors with the tensors on the device. Does not
  // wait for the copies. Thread-safe.
  absl::Status Start(data::LoadedBatch* batch) const;
  // Makes later work of the calling thread on the device wait for the copies. Does not block the
  // thread. Called once for each batch.
  absl::Status Finish(data::LoadedBatch* batch) const;

 private:
  const at::Device device_;
  const c10::Stream stream_;
};

}  // namespace muster
