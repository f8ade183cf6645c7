// A block of host memory for copies of the training state: whole pages, no more than asked for.
// LibTorch's own pinned memory rounds a block up to a power of two, and keeps it.
#pragma once

#include <cstddef>
#include <memory>

namespace muster {

class HostMemory {
 public:
  // Null: there is no memory. `pinned`: registered with CUDA, so that copies off a device run at
  // full speed; where that fails (a limit on locked memory) it is ordinary memory all the same.
  static std::unique_ptr<HostMemory> Make(size_t bytes, bool pinned);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  bool wants_pinned() const { return wants_pinned_; }
  size_t registered() const { return registered_; }  // bytes, from the first on

 private:
  HostMemory() = default;
  void Register();

  char* data_ = nullptr;
  size_t size_ = 0, registered_ = 0;
  bool wants_pinned_ = false;
};

}  // namespace muster
