// A memory region of fixed size that two processes of one host share: a sealed memfd, which has no
// name in a file system. One process creates the region. The other process opens the region through
// /proc while the creator runs. The creator cannot shrink or revoke an opened region. The kernel
// frees the region when neither process uses it.
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
  // Identifies the region for other processes of the same host.
  struct Place {
    int64_t pid = 0;     // The creator's process id.
    int64_t fd = 0;      // The creator's descriptor.
    uint64_t bytes = 0;  // The size.
    uint64_t nonce = 0;  // A random number in the memfd's name. Open verifies the name.
    friend bool operator==(const Place&, const Place&) = default;
  };

  // The bytes [begin, end) of the region.
  struct ByteRange {
    uint64_t begin = 0, end = 0;
  };
  // Creates a region of zeros and allocates its pages, so that no later access fails for lack of
  // memory. If `ranges` is not empty, allocates only the pages of these ranges, and the caller must
  // not access other pages. `ranges` must be in ascending order. Returns PeerLost if there is not
  // enough memory.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(
      uint64_t bytes, std::span<const ByteRange> ranges = {});
  // Opens the region at `place`. Returns PeerLost if this process cannot access the region, for
  // example because the creator is in another container or belongs to another user. Also returns
  // PeerLost if the region has another size. In both cases, callers send the data over a connection
  // instead.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Place& place, bool writable);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The caller must not write to a region that was opened with `writable` false.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(base_), size_t(place_.bytes) / sizeof(float)};
  }
  const Place& place() const { return place_; }

 private:
  SharedMemory(Fd fd, const Place& place) : fd_(std::move(fd)), place_(place) {}
  absl::Status Map(bool writable);
  absl::Status Populate(std::span<const ByteRange> ranges);

  const Fd fd_;
  const Place place_;
  std::byte* base_ = nullptr;
};

}  // namespace muster::transport
