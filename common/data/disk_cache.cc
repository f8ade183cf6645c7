// A cache on disk: a file with a slot at a fixed place for each example.
//
// The first process that loads an example writes the bytes to the example's slot, then the
// checksum, which marks the slot as full. No lock is needed for this, because two processes write
// the same bytes. Only the creation of the file has a lock, so that the disk needs room for only
// one file. If a process is killed while it writes a slot, the slot has no checksum. If the host
// crashes and a slot loses data, the checksum does not match. In both cases the slot is written
// again.
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "common/base/hash.h"
#include "common/base/random_name.h"
#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {
namespace {

constexpr int64_t kPage = 4096;
constexpr char kMagic[] = "muster cache 1\n";

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

struct Component {
  at::ScalarType type;
  std::vector<int64_t> shape;
  int64_t offset = 0, bytes = 0;  // The place in the slot.
};

// The layout of the file: [header, a page or more] [a checksum for each example] [a slot for each].
struct CacheLayout {
  std::string header;
  int64_t examples = 0, slot = 0, sums_at = 0, slots_at = 0, bytes = 0;
  std::vector<Component> components;
};

CacheLayout LayoutOf(const Example& example, int64_t examples, const std::string& stamp) {
  CacheLayout layout;
  layout.examples = examples;
  std::string shapes;
  for (const at::Tensor& tensor : example) {
    Component component{tensor.scalar_type(), tensor.sizes().vec(), layout.slot,
                        static_cast<int64_t>(tensor.nbytes())};
    layout.slot += RoundUp(component.bytes, 16);
    shapes +=
        fmt::format("{} [{}]\n", c10::toString(component.type), fmt::join(component.shape, ", "));
    layout.components.push_back(std::move(component));
  }
  layout.header = fmt::format("{}{} examples\n{}{}\n", kMagic, examples, shapes, stamp);
  layout.sums_at = RoundUp(static_cast<int64_t>(layout.header.size()) + 1, kPage);
  layout.slots_at = RoundUp(layout.sums_at + 8 * examples, kPage);
  layout.bytes = layout.slots_at + layout.slot * examples;
  return layout;
}

absl::Status Failed(const std::string& path, const char* what, int error) {
  return ConfigurationError(
      fmt::format("cannot {} the cache file '{}': {}", what, path, std::strerror(error)));
}

class CacheFile {
 public:
  // Opens the file with this layout in the folder. If the file does not exist, creates it with its
  // full size. A new file appears complete, by one link(), so that concurrent processes use the
  // same file.
  static absl::StatusOr<std::unique_ptr<CacheFile>> Open(const std::string& folder,
                                                         const CacheLayout& layout);
  ~CacheFile() {
    if (bytes_ != nullptr) munmap(bytes_, static_cast<size_t>(size_));
  }
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  const char* at(int64_t offset) const { return bytes_ + offset; }
  // The checksum of a slot, or 0 if the slot is empty. A process that reads a nonzero checksum can
  // also read the slot's bytes.
  std::atomic<uint64_t>& sum(const CacheLayout& layout, int64_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(bytes_ + layout.sums_at)[index];
  }
  absl::Status Write(const char* data, int64_t bytes, int64_t offset) const {
    while (bytes > 0) {
      const ssize_t done = pwrite(fd_.get(), data, static_cast<size_t>(bytes), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return Failed(path_, "write to", done < 0 ? errno : EIO);
      data += done, bytes -= done, offset += done;
    }
    return absl::OkStatus();
  }

 private:
  explicit CacheFile(std::string path) : path_(std::move(path)) {}
  absl::Status Map(const CacheLayout& layout);

  const std::string path_;
  Fd fd_;
  char* bytes_ = nullptr;
  int64_t size_ = 0;
};

// ---- Making the file

constexpr int kStalledSeconds = 120;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Allocates the whole layout and writes its header.
absl::Status Allocate(int fd, const std::string& path, const CacheLayout& layout) {
  // Allocates the full size now, so that a full disk causes neither an error nor a signal during
  // training.
  const int error = posix_fallocate(fd, 0, layout.bytes);
  const bool written = error == 0 && pwrite(fd, layout.header.data(), layout.header.size(), 0) ==
                                         static_cast<ssize_t>(layout.header.size());
  const int write_error = errno;
  if (written) return absl::OkStatus();
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return ConfigurationError(
        fmt::format("the cache file '{}' needs {} bytes for {} examples, and the disk has no room "
                    "for them ({}): choose another folder, or leave the cache out",
                    path, layout.bytes, layout.examples, std::strerror(error)));
  }
  return Failed(path, "make", error != 0 ? error : write_error);
}

// Blocks until this process has the lock of the file, or until `made` exists, because the lock is
// then not needed. Returns a ConfigurationError if the process with the lock writes nothing for
// kStalledSeconds. Returns kUnimplemented if the file system has no locks.
absl::Status Lock(int fd, const std::string& path, const std::string& made) {
  MonotonicTime last = Clock::now();
  int64_t blocks = -1;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return absl::UnimplementedError("no locks");
    if (Exists(made)) return absl::OkStatus();
    struct stat info = {};
    if (fstat(fd, &info) == 0 && info.st_blocks != blocks) {
      blocks = info.st_blocks;
      last = Clock::now();
    }
    if (Seconds(Clock::now() - last) > kStalledSeconds) {
      return ConfigurationError(fmt::format(
          "another process holds the lock of the cache file '{}' and has written nothing to it for "
          "{} seconds: end that process (lslocks shows it), or choose another folder",
          path, kStalledSeconds));
    }
    usleep(20'000);
  }
  return absl::OkStatus();
}

// Fills the empty file at `part` and links it to `path`.
absl::Status Publish(int fd, const std::string& part, const std::string& path,
                     const CacheLayout& layout) {
  const absl::Status allocated = Allocate(fd, path, layout);
  const bool linked = allocated.ok() && link(part.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(part.c_str());
  // Success also means that another process made the file meanwhile. In that case the disk may have
  // had no room for a second file.
  if (linked || Exists(path)) return absl::OkStatus();
  return allocated.ok() ? Failed(path, "make", error) : allocated;
}

// Without locks, each process makes its own file. The first link() succeeds, and all other files
// are removed.
absl::Status MakeWithoutLock(const std::string& path, const CacheLayout& layout) {
  const std::string part = fmt::format("{}.{}.part", path, RandomName());
  const Fd file(open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return Failed(part, "make", errno);
  return Publish(file.get(), part, path, layout);
}

// Makes the file at `path`, or waits until another process has made it. The process writes the file
// at `part`, under a lock that the kernel releases when the process ends. Then link() makes the
// complete file visible at `path`. An unlocked file at `part` is the rest of a killed process.
absl::Status Make(const std::string& path, const CacheLayout& layout) {
  const std::string part = path + ".part";
  while (!Exists(path)) {
    const Fd file(open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file) return Failed(part, "make", errno);
    const absl::Status lock = Lock(file.get(), part, path);
    if (absl::IsUnimplemented(lock)) {
      unlink(part.c_str());
      return MakeWithoutLock(path, layout);
    }
    MUSTER_RETURN_IF_ERROR(lock);
    struct stat locked = {}, named = {};
    if (Exists(path) || fstat(file.get(), &locked) != 0 || stat(part.c_str(), &named) != 0 ||
        locked.st_ino != named.st_ino || locked.st_dev != named.st_dev) {
      continue;  // Another process was faster.
    }
    if (locked.st_size == 0) return Publish(file.get(), part, path, layout);
    // Removes the file instead of truncating it, because another process may map it.
    if (unlink(part.c_str()) != 0 && errno != ENOENT) return Failed(part, "remove", errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::Open(const std::string& folder,
                                                           const CacheLayout& layout) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    return ConfigurationError(
        fmt::format("cannot make the cache folder '{}': {}", folder, failed.message()));
  const std::string path = fmt::format("{}/{:016x}.cache", folder, Fnv1a(layout.header));
  std::unique_ptr<CacheFile> file(new CacheFile(path));
  MUSTER_RETURN_IF_ERROR(Make(path, layout));
  MUSTER_RETURN_IF_ERROR(file->Map(layout));
  return file;
}

absl::Status CacheFile::Map(const CacheLayout& layout) {
  fd_ = Fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd_) return Failed(path_, "open", errno);
  struct stat info = {};
  if (fstat(fd_.get(), &info) != 0) return Failed(path_, "open", errno);
  if (info.st_size != layout.bytes) {
    return ConfigurationError(
        fmt::format("the cache file '{}' has {} bytes instead of {}: remove it", path_,
                    static_cast<int64_t>(info.st_size), layout.bytes));
  }
  void* const mapped = mmap(nullptr, static_cast<size_t>(layout.bytes), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) return Failed(path_, "map", errno);
  bytes_ = static_cast<char*>(mapped);
  size_ = layout.bytes;
  if (std::memcmp(bytes_, layout.header.data(), layout.header.size()) != 0)
    return ConfigurationError(
        fmt::format("the cache file '{}' is of other data: remove it", path_));
  return absl::OkStatus();
}

class DiskCacheDataset final : public Dataset {
 public:
  DiskCacheDataset(DatasetPtr input, CacheLayout layout, std::unique_ptr<CacheFile> file)
      : input_(std::move(input)),
        layout_(std::move(layout)),
        file_(std::move(file)),
        checked_(new std::atomic<bool>[static_cast<size_t>(layout_.examples)]) {
    for (int64_t i = 0; i < layout_.examples; ++i) checked_[i] = false;
  }

  int64_t size() const override { return layout_.examples; }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    if (!Has(index)) {
      // Calls Get, because the input's GetBatch may refuse an example that Get accepts.
      MUSTER_ASSIGN_OR_RETURN(Batch example, input_->Get(index, context));
      for (at::Tensor& component : example) component = component.unsqueeze(0);
      MUSTER_RETURN_IF_ERROR(Keep({index}, example));
    }
    Batch batch = Read({index});
    return OnlyExample(std::move(batch));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    std::vector<int64_t> missing;
    for (const int64_t index : indices) {
      if (!Has(index)) missing.push_back(index);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    if (!missing.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const Batch batch, input_->GetBatch(missing, context));
      MUSTER_RETURN_IF_ERROR(
          CheckRows(batch, static_cast<int64_t>(missing.size()), "The cached dataset"));
      MUSTER_RETURN_IF_ERROR(Keep(missing, batch));
    }
    return Read(indices);
  }

 private:
  int64_t SlotAt(int64_t index) const { return layout_.slots_at + index * layout_.slot; }

  // REQUIRES: the file has these examples.
  Batch Read(const std::vector<int64_t>& indices) const {
    Batch batch;
    for (const Component& component : layout_.components) {
      std::vector<int64_t> shape = component.shape;
      shape.insert(shape.begin(), static_cast<int64_t>(indices.size()));
      at::Tensor tensor = at::empty(shape, at::TensorOptions(component.type));
      auto* to = static_cast<char*>(tensor.mutable_data_ptr());
      for (const int64_t index : indices) {
        std::memcpy(to, file_->at(SlotAt(index) + component.offset),
                    static_cast<size_t>(component.bytes));
        to += component.bytes;
      }
      batch.push_back(std::move(tensor));
    }
    return batch;
  }

  // Returns the checksum of a slot, never 0, because 0 marks an empty slot.
  uint64_t SumOf(int64_t index) const {
    const std::string_view bytes(file_->at(SlotAt(index)), static_cast<size_t>(layout_.slot));
    return std::max<uint64_t>(1, Fnv1a(bytes));
  }

  // Each process verifies each checksum once.
  bool Has(int64_t index) const {
    if (checked_[index].load(std::memory_order_acquire)) return true;
    const uint64_t sum = file_->sum(layout_, index).load(std::memory_order_acquire);
    if (sum == 0 || sum != SumOf(index)) return false;
    checked_[index].store(true, std::memory_order_release);
    return true;
  }

  // Checks that an example fits the slots. The error does not count as damage, because the example
  // is complete, and the cache belongs to other data.
  absl::Status CheckAlike(int64_t index, const Batch& batch) const {
    for (size_t c = 0; c < batch.size() && batch.size() == layout_.components.size(); ++c) {
      const Component& known = layout_.components[c];
      const at::IntArrayRef shape = batch[c].sizes().slice(1);
      if (batch[c].scalar_type() == known.type && shape == at::IntArrayRef(known.shape)) continue;
      return ConfigurationError(
          fmt::format("component {} of example {} is {} [{}] and that of the first one {} [{}], "
                      "and a cache on disk holds examples of one shape and type: make pictures "
                      "alike by \"size\", or keep them by \"cache\": \"memory\"",
                      c, index, toString(batch[c].scalar_type()), fmt::join(shape, ", "),
                      toString(known.type), fmt::join(known.shape, ", ")));
    }
    if (batch.size() == layout_.components.size()) return absl::OkStatus();
    return ProgramError(fmt::format("example {} has {} components, and the first one {}", index,
                                    batch.size(), layout_.components.size()));
  }

  absl::Status Keep(const std::vector<int64_t>& missing, const Batch& batch) const {
    MUSTER_RETURN_IF_ERROR(CheckAlike(missing[0], batch));
    std::string slot(static_cast<size_t>(layout_.slot), '\0');
    std::vector<at::Tensor> components;
    for (const at::Tensor& component : batch) components.push_back(component.contiguous());
    for (size_t i = 0; i < missing.size(); ++i) {
      for (size_t c = 0; c < components.size(); ++c) {
        const Component& known = layout_.components[c];
        std::memcpy(slot.data() + known.offset,
                    static_cast<const char*>(components[c].const_data_ptr()) +
                        static_cast<int64_t>(i) * known.bytes,
                    static_cast<size_t>(known.bytes));
      }
      MUSTER_RETURN_IF_ERROR(file_->Write(slot.data(), layout_.slot, SlotAt(missing[i])));
      file_->sum(layout_, missing[i]).store(SumOf(missing[i]), std::memory_order_release);
      checked_[missing[i]].store(true, std::memory_order_release);
    }
    return absl::OkStatus();
  }

  const DatasetPtr input_;
  const CacheLayout layout_;
  const std::unique_ptr<CacheFile> file_;
  const std::unique_ptr<std::atomic<bool>[]> checked_;
};

}  // namespace

absl::StatusOr<DatasetPtr> Cache(DatasetPtr input, const std::string& folder,
                                 const std::string& stamp) {
  MUSTER_RETURN_IF_ERROR(CheckSized(*NotNull(input, "Cache"), "cache"));
  const int64_t examples = input->size();
  if (examples == 0) return input;
  MUSTER_ASSIGN_OR_RETURN(const Batch none, input->GetBatch({}, {}));
  Example like;
  for (const at::Tensor& component : none)
    like.push_back(at::empty(component.sizes().slice(1), component.options()));
  CacheLayout layout = LayoutOf(like, examples, stamp);
  MUSTER_ASSIGN_OR_RETURN(auto file, CacheFile::Open(folder, layout));
  return std::make_shared<DiskCacheDataset>(std::move(input), std::move(layout), std::move(file));
}

}  // namespace muster::data
