// A memory region of fixed size that two processes of one host share. It has no name in a file
// system: the other process opens it through /proc while its creator lives. The kernel frees it
// once both processes have ended. The creator cannot shrink or revoke it while the other process
// reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::transport {

class SharedMemory {
 public:
  // The location at which another process of the same host finds the region.
  struct Place {
    int64_t pid = 0;
    int64_t fd = 0;
    uint64_t bytes = 0;
    uint64_t nonce = 0;  // Part of the memfd's name, which Open checks before it opens the file.
    friend bool operator==(const Place&, const Place&) = default;
  };

  // The bytes [begin, end) of the region.
  struct Part {
    uint64_t begin = 0, end = 0;
  };
  // Returns zeroed memory that is fully allocated, so that a later access cannot fail. With
  // `parts`, in ascending order, allocates only their pages. The other pages take no memory and
  // must not be touched. Returns PeerLost if there is not enough memory.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(uint64_t bytes,
                                                              std::span<const Part> parts = {});
  // Returns PeerLost if `place` is of another container or user, or is not a region of this size.
  // Callers then use a connection instead.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Place& place, bool writable);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The caller must not write to a region that was opened read-only.
  std::span<std::byte> bytes() const { return {base_, size_t(place_.bytes)}; }
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(base_), size_t(place_.bytes) / sizeof(float)};
  }
  const Place& place() const { return place_; }

 private:
  SharedMemory(Fd fd, const Place& place) : fd_(std::move(fd)), place_(place) {}
  absl::Status Map(bool writable);
  absl::Status Populate(std::span<const Part> parts);

  const Fd fd_;
  const Place place_;
  std::byte* base_ = nullptr;
};

}  // namespace muster::transport
