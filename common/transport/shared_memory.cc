#include "common/transport/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/synchronization/mutex.h"
#include "common/base/process/memory.h"

namespace muster::transport {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status Failed(std::string_view what) {
  return PeerLost(fmt::format("{}: {}", what, strerror(errno)));
}
std::string NameOf(uint64_t nonce) { return fmt::format("muster-{:016x}", nonce); }

}  // namespace

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) munmap(base_, place_.bytes);
}

absl::Status SharedMemory::Map(bool writable) {
  void* at = mmap(nullptr, place_.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                  fd_.get(), 0);
  if (at == MAP_FAILED) return Failed("cannot map shared memory");
  base_ = static_cast<std::byte*>(at);
  return absl::OkStatus();
}

// Allocates the pages of the ranges. If the kernel supports MADV_POPULATE_WRITE, the first access
// to them is as fast as later ones.
absl::Status SharedMemory::Populate(std::span<const ByteRange> ranges) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const ByteRange& range : ranges) {
    if (range.begin == range.end) continue;
    const uint64_t begin = range.begin / page * page;
    (void)madvise(base_ + begin, range.end - begin, MADV_POPULATE_WRITE);
    // Allocates the pages that madvise has not allocated. Without this, an access could cause
    // SIGBUS later.
    if (const int error = posix_fallocate(fd_.get(), static_cast<off_t>(begin),
                                          static_cast<off_t>(range.end - begin));
        error != 0) {
      errno = error;
      return Failed(fmt::format("no room for {} MiB of shared memory", place_.bytes >> 20));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(
    uint64_t bytes, std::span<const ByteRange> ranges) {
  const ByteRange all{0, bytes};
  uint64_t wanted = 0;
  for (const ByteRange& range : ranges.empty() ? std::span(&all, 1) : ranges)
    wanted += range.end - range.begin;
  // Only one call at a time, so each call sees the memory that earlier calls have taken. The kernel
  // does not refuse memory that the machine or the container lacks. It kills processes instead.
  static absl::Mutex one_at_a_time;
  absl::MutexLock lock(&one_at_a_time);
  if (bytes == 0 || wanted > AvailableMemory() / 2)
    return PeerLost(fmt::format("no room for {} MiB of shared memory", wanted >> 20));
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return Failed("cannot get random bytes");
  Fd fd(memfd_create(NameOf(nonce).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Failed("cannot make shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Failed("cannot size shared memory");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Failed("cannot seal shared memory");
  const Place place{getpid(), fd.get(), bytes, nonce};
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(fd), place));
  MUSTER_RETURN_IF_ERROR(memory->Map(true));
  // Large pages make accesses faster. With ranges, they would also include the memory between them.
  if (ranges.empty()) (void)madvise(memory->base_, bytes, MADV_HUGEPAGE);
  MUSTER_RETURN_IF_ERROR(memory->Populate(ranges.empty() ? std::span(&all, 1) : ranges));
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Open(const Place& place,
                                                                 bool writable) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.fd);
  // Checks the name before the file is opened, because opening an unknown file may have side
  // effects.
  char name[64] = {};
  if (readlink(path.c_str(), name, sizeof name - 1) < 0) return Failed("cannot look at " + path);
  if (std::string_view(name) != fmt::format("/memfd:{} (deleted)", NameOf(place.nonce)))
    return PeerLost(fmt::format("{} is something else here: another container?", path));
  Fd fd(open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (!fd) return Failed("cannot open " + path);
  struct stat status {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &status) != 0 || status.st_size < 0 ||
      static_cast<uint64_t>(status.st_size) != place.bytes || seals < 0 ||
      (seals & kSeals) != kSeals)
    return PeerLost(fmt::format("{} has another size, or could change it", path));
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(fd), place));
  MUSTER_RETURN_IF_ERROR(memory->Map(writable));
  (void)madvise(memory->base_, place.bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace muster::transport
