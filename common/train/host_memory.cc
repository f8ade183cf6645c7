#include "common/train/host_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include "common/base/logging.h"

namespace muster {
namespace {

// Returns a CUDA function if the CUDA part of LibTorch is loaded, else null. This library does not
// link CUDA.
template <typename Function>
Function Loaded(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

std::unique_ptr<HostMemory> HostMemory::Make(size_t bytes, bool pinned) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  (void)madvise(data, bytes, MADV_HUGEPAGE);  // A few hundred page faults instead of 100,000.
  std::unique_ptr<HostMemory> memory(new HostMemory);
  memory->data_ = static_cast<char*>(data);
  memory->size_ = bytes;
  memory->wants_pinned_ = pinned;
  if (pinned) memory->Register();
  return memory;
}

void HostMemory::Register() {
  const auto add = Loaded<int (*)(void*, size_t, unsigned)>("cudaHostRegister");
  if (add == nullptr || size_ == 0) return;
  if (const int error = add(data_, size_, /*portable=*/1); error != 0) {
    // Clears CUDA's last error, so that no later call reports it.
    if (const auto forget = Loaded<int (*)()>("cudaGetLastError")) (void)forget();
    LogWarning(
        "CUDA does not pin {} bytes for a copy of the state (error {}): they are copied more "
        "slowly; see ulimit -l",
        size_, error);
    return;
  }
  registered_ = true;
}

HostMemory::~HostMemory() {
  if (registered_) {
    if (const auto remove = Loaded<int (*)(void*)>("cudaHostUnregister")) (void)remove(data_);
  }
  munmap(data_, size_);
}

}  // namespace muster
