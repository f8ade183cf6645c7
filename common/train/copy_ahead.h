// Batches that are copied to a GPU before their step asks for them: the thread that loads a batch
// puts it into pinned memory and starts the copy on a stream of its own, and the step's stream
// waits for it, on the device. Written against LibTorch's interface of any device, so that it needs
// no CUDA to be built or linked.
#pragma once

#include <c10/core/Stream.h>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

class CopyAhead {
 public:
  // Whether copies to this device can run by themselves.
  static bool Helps(at::Device device) { return device.is_cuda(); }
  // REQUIRES: Helps(device).
  explicit CopyAhead(at::Device device);

  // The batch's tensors become those on the device, which the copies fill in. Any thread.
  absl::Status Start(data::LoadedBatch* batch) const;
  // What the calling thread runs on the device from now on sees the batch. Once a batch.
  absl::Status Finish(data::LoadedBatch* batch) const;

 private:
  const at::Device device_;
  const c10::Stream stream_;
};

}  // namespace muster
