// A region of memory of fixed size that two processes of one host share. It has no name in a file
// system: the other process finds it through /proc while the creator lives. Nothing remains once
// both processes have ended, whichever ends first. The creator cannot shrink or revoke it while it
// is read.
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
    uint64_t nonce = 0;  // Part of its name, so that nothing else is opened by mistake.
    friend bool operator==(const Place&, const Place&) = default;
  };

  // The bytes [begin, end) of the region.
  struct Part {
    uint64_t begin = 0, end = 0;
  };
  // Returns memory with zeros, all of it allocated, so that touching it later cannot fail. With
  // `parts`, in ascending order, only these and the rest of their pages are allocated. The
  // remainder takes no memory and must not be touched. Errors (no memory, another container,
  // another user) are sentences for a log; the caller has another way.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(uint64_t bytes,
                                                              std::span<const Part> parts = {});
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Place& place, bool writable);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Must not be written to if it was opened read-only.
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
