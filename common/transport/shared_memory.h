// A memory region of fixed size that two processes of one host share. The region has no name in a
// file system. The other process opens it through /proc while the creator lives. The creator cannot
// shrink or revoke the region afterwards. The kernel frees the region when neither process uses it.
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
    int64_t pid = 0;
    int64_t fd = 0;
    uint64_t bytes = 0;
    uint64_t nonce = 0;  // A part of the memfd's name. Open checks the name first.
    friend bool operator==(const Place&, const Place&) = default;
  };

  // The bytes [begin, end) of the region.
  struct Part {
    uint64_t begin = 0, end = 0;
  };
  // Creates a region of zeros. Allocates all pages now, so a later access cannot fail. If `parts`
  // (in ascending order) is not empty, allocates only the pages of these parts. The caller must not
  // access the other pages. Returns PeerLost if there is not enough memory.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(uint64_t bytes,
                                                              std::span<const Part> parts = {});
  // Opens the region at `place`. Returns PeerLost if the region is not accessible (another
  // container or user) or does not have this size. Callers then use a connection instead.
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
