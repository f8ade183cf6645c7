// Copies batches to a GPU before the step that uses them. The thread that loads a batch copies it
// to pinned memory, and starts the copy to the device on a separate CUDA stream. The stream of the
// step waits for that copy. The code calls LibTorch's device-independent interface, and therefore
// builds and links without CUDA.
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

  // Thread-safe. Starts the copies to the device, and replaces the batch's tensors with the device
  // tensors. Returns before the copies are complete.
  absl::Status Start(data::LoadedBatch* batch) const;
  // Makes the current stream of the calling thread wait for the copies. Does not block the thread.
  // Called once for each batch, by the thread that uses the batch.
  absl::Status Finish(data::LoadedBatch* batch) const;

 private:
  const at::Device device_;
  const c10::Stream stream_;
};

}  // namespace muster
