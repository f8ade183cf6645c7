// A block of host memory for a copy of the training state. Its size is rounded up to whole pages.
// LibTorch's pinned memory is not used: LibTorch rounds a pinned block up to a power of two and
// never releases the block.
#pragma once

#include <cstddef>
#include <memory>

namespace muster {

class HostMemory {
 public:
  // Returns null if there is not enough memory. If `pinned` is true, registers the block with CUDA,
  // so that copies from a device run at full speed. The whole block is one registered range,
  // because CUDA refuses a copy that covers two ranges. If CUDA refuses the registration, logs a
  // warning and returns an ordinary block. For example, CUDA refuses a block that exceeds the limit
  // on locked memory (ulimit -l).
  static std::unique_ptr<HostMemory> Make(size_t bytes, bool pinned);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Returns the argument `pinned` of Make.
  bool wants_pinned() const { return wants_pinned_; }
  // Returns true if the block is registered with CUDA.
  bool registered() const { return registered_; }

 private:
  HostMemory() = default;
  void Register();

  char* data_ = nullptr;
  size_t size_ = 0;
  bool wants_pinned_ = false, registered_ = false;
};

}  // namespace muster
