// A block of host memory for copies of the training state. Its size is rounded up only to whole
// pages. LibTorch's pinned memory is not used, because it rounds a block up to a power of two and
// never releases it.
#pragma once

#include <cstddef>
#include <memory>

namespace muster {

class HostMemory {
 public:
  // Returns null if there is not enough memory. If `pinned` is true, the block is registered with
  // CUDA, and copies from a device run at full speed. If CUDA refuses, for example because of a
  // limit on locked memory, it is ordinary memory. It is registered as one range, because CUDA
  // refuses a copy that lies in two.
  static std::unique_ptr<HostMemory> Make(size_t bytes, bool pinned);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
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
