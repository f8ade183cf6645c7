#include "common/collective/group/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "common/base/logging.h"

namespace muster::collective {
namespace {

constexpr const char* kFolder = "/dev/shm/";
constexpr std::string_view kPrefix = "muster-";
constexpr int64_t kPage = 1 << 16;  // A multiple of every page size in use.

int64_t RoundUp(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

absl::Status Failed(const char* what) {
  return PeerLost(fmt::format("{}: {}", what, strerror(errno)));
}

}  // namespace

struct SharedReason {
  static constexpr uint32_t kNone = 0, kComing = 1, kThere = 2;
  std::atomic<uint32_t> state{kNone};
  uint32_t code = 0, bytes = 0;
  int32_t rank = 0;
  char text[4096];
};

Segment::Segment(std::string name, const SegmentLayout& layout, int fd, bool created)
    : name_(std::move(name)), layout_(layout), fd_(fd), linked_(created) {}

Segment::~Segment() {
  if (linked_) Unlink();
  if (base_ != nullptr) munmap(base_, FixedBytes() + layout_.ranks * layout_.arena_bytes);
  close(fd_);
}

int64_t Segment::StagingOffset() const {
  return RoundUp(sizeof(SharedReason)) +
         RoundUp(layout_.ranks * static_cast<int64_t>(sizeof(Cell)));
}

int64_t Segment::FixedBytes() const {
  return StagingOffset() + layout_.ranks * RoundUp(layout_.staging_bytes);
}

std::span<Cell> Segment::cells() const {
  return {reinterpret_cast<Cell*>(base_ + RoundUp(sizeof(SharedReason))), size_t(layout_.ranks)};
}

std::byte* Segment::staging(int rank) const {
  return base_ + StagingOffset() + rank * RoundUp(layout_.staging_bytes);
}

void Segment::GiveReason(int rank, const absl::Status& why) {
  SharedReason& to = shared_reason();
  uint32_t none = SharedReason::kNone;
  if (!to.state.compare_exchange_strong(none, SharedReason::kComing)) return;
  to.rank = rank;
  to.code = static_cast<uint32_t>(why.code());
  to.bytes = static_cast<uint32_t>(std::min(Message(why).size(), sizeof to.text));
  std::memcpy(to.text, Message(why).data(), to.bytes);
  to.state.store(SharedReason::kThere, std::memory_order_release);
}

std::optional<Segment::Reason> Segment::reason() const {
  const SharedReason& from = shared_reason();
  if (from.state.load(std::memory_order_acquire) != SharedReason::kThere) return std::nullopt;
  const size_t bytes = std::min<size_t>(from.bytes, sizeof from.text);
  return Reason{from.rank, from.code, std::string(from.text, bytes)};
}

std::byte* Segment::arena(int rank) const {
  return base_ + FixedBytes() + rank * layout_.arena_bytes;
}

absl::Status Segment::Map() {
  const int64_t bytes = FixedBytes() + layout_.ranks * layout_.arena_bytes;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (at == MAP_FAILED) return Failed("mmap");
  base_ = static_cast<std::byte*>(at);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Segment>> Segment::Create(const std::string& name,
                                                         const SegmentLayout& layout) {
  SweepAbandoned();
  const int fd = open((kFolder + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("cannot create a file in /dev/shm");
  std::shared_ptr<Segment> segment(new Segment(name, layout, fd, true));
  flock(fd, LOCK_EX | LOCK_NB);  // Shows that the creator is alive.
  const int64_t all = segment->FixedBytes() + layout.ranks * layout.arena_bytes;
  if (ftruncate(fd, all) != 0) return Failed("cannot size a file in /dev/shm");
  // Allocated now, because access to a page that cannot be allocated raises SIGBUS.
  if (const int error = posix_fallocate(fd, 0, segment->FixedBytes()); error != 0) {
    errno = error;
    return Failed(
        fmt::format("/dev/shm has no room for {} KiB", segment->FixedBytes() >> 10).c_str());
  }
  MUSTER_RETURN_IF_ERROR(segment->Map());
  new (&segment->shared_reason()) SharedReason();
  for (Cell& cell : segment->cells()) new (&cell) Cell();
  return segment;
}

absl::StatusOr<std::shared_ptr<Segment>> Segment::Open(const std::string& name,
                                                       const SegmentLayout& layout) {
  const int fd = open((kFolder + name).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Failed("cannot open the group's file in /dev/shm");
  std::shared_ptr<Segment> segment(new Segment(name, layout, fd, false));
  struct stat status {};
  const int64_t all = segment->FixedBytes() + layout.ranks * layout.arena_bytes;
  if (fstat(fd, &status) != 0 || status.st_size != all) {
    return PeerLost("the group's file in /dev/shm has another size");
  }
  MUSTER_RETURN_IF_ERROR(segment->Map());
  return segment;
}

void Segment::Unlink() {
  unlink((kFolder + name_).c_str());
  linked_ = false;
}

void Segment::SweepAbandoned() {
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    const std::string path = std::string(kFolder) + entry->d_name;
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat status {};
    // Ignores files that are less than a minute old, because their creator may not have locked them
    // yet.
    const bool old = fstat(fd, &status) == 0 && time(nullptr) - status.st_ctime > 60;
    if (old && flock(fd, LOCK_EX | LOCK_NB) == 0) {
      unlink(path.c_str());
      LogInfo("removed {}: a process that was killed had not removed it", path);
    }
    close(fd);
  }
  closedir(folder);
}

int64_t Segment::Allocate(int rank, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const int64_t rounded = RoundUp(bytes), offset = allocated_;
  if (bytes <= 0 || offset + rounded > layout_.arena_bytes) return -1;
  const int64_t at = arena(rank) - base_ + offset;
  if (posix_fallocate(fd_, at, rounded) != 0) {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, rounded);
    return -1;
  }
  allocated_ += rounded;
  return offset;
}

void Segment::Free(int rank, int64_t offset, int64_t bytes) {
  // The addresses are not reused, because a late rank may still write there.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, arena(rank) - base_ + offset,
            RoundUp(bytes));
}

}  // namespace muster::collective
