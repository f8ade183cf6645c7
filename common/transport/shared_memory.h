// Memory that two processes of one host share, of a fixed size. It has no name in any file system:
// the other process finds it through /proc while its maker lives, and nothing is left behind
// whoever dies when. The maker cannot take it back: it cannot be made smaller under a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/fd.h"
#include "muster/status.h"

namespace muster::transport {

class SharedMemory {
 public:
  // Where another process of the same host finds it.
  struct Place {
    int64_t pid = 0;
    int64_t fd = 0;
    uint64_t bytes = 0;
    uint64_t nonce = 0;  // part of its name: nothing else is opened by mistake
    friend bool operator==(const Place&, const Place&) = default;
  };

  // Of its bytes, [begin, end).
  struct Part {
    uint64_t begin = 0, end = 0;
  };
  // Zeros, all of them there: touching it later cannot fail. With `parts`, in ascending order, only
  // these are, and whatever else lies in their pages; the rest takes no memory, and is not to be
  // touched. Errors (no memory, another container, another user) are sentences for a log: the
  // caller has another way.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(uint64_t bytes,
                                                              std::span<const Part> parts = {});
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Place& place, bool writable);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Not to be written to where it was opened so.
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
