// A block of host memory for copies of the training state. Takes whole pages and no more than
// requested. LibTorch's pinned memory is not used: it rounds a block up to a power of two, and does
// not release it.
#pragma once

#include <cstddef>
#include <memory>

namespace muster {

class HostMemory {
 public:
  // Returns null if there is not enough memory. `pinned` registers the block with CUDA, so that
  // copies from a device run at full speed. If registration fails, for example at a limit on locked
  // memory, the block is ordinary memory.
  static std::unique_ptr<HostMemory> Make(size_t bytes, bool pinned);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  bool wants_pinned() const { return wants_pinned_; }
  // Registered bytes, from the start of the block.
  size_t registered() const { return registered_; }

 private:
  HostMemory() = default;
  void Register();

  char* data_ = nullptr;
  size_t size_ = 0, registered_ = 0;
  bool wants_pinned_ = false;
};

}  // namespace muster
