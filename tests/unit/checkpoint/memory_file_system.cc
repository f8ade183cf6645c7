#include "tests/unit/checkpoint/memory_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>

namespace muster::checkpoint {

struct MemoryFileSystem::Node {
  explicit Node(bool is_directory) : directory(is_directory) {}
  const bool directory;
  std::map<std::string, NodePtr> entries, durable_entries;
  std::string bytes, durable_bytes;
};

// A change of directory entries. A creation has no `from`, and a removal has no `to`.
struct MemoryFileSystem::Change {
  NodePtr from;
  std::string from_name;
  NodePtr to;
  std::string to_name;
  NodePtr node;
};

// A name in a directory. There need not be a file with this name.
struct MemoryFileSystem::Entry {
  NodePtr directory;
  std::string name;
  NodePtr node() const {
    const auto it = directory->entries.find(name);
    return it == directory->entries.end() ? nullptr : it->second;
  }
};

namespace {

absl::Status NotThere(std::string_view doing, const std::string& path) {
  return absl::NotFoundError(fmt::format("cannot {} {}: No such file or directory", doing, path));
}

}  // namespace

class MemoryFileSystem::Writer : public WritableFile {
 public:
  Writer(MemoryFileSystem* files, NodePtr node, std::string path, int64_t crashes)
      : files_(files), node_(std::move(node)), path_(std::move(path)), crashes_(crashes) {}

  absl::Status Append(std::string_view bytes) override {
    MUSTER_RETURN_IF_ERROR(Begin("Append"));
    return files_->Write(*node_, path_, std::nullopt, bytes);
  }
  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    MUSTER_RETURN_IF_ERROR(Begin("WriteAt"));
    return files_->Write(*node_, path_, offset, bytes);
  }
  absl::Status Sync() override {
    MUSTER_RETURN_IF_ERROR(Begin("Sync"));
    const absl::MutexLock lock(&files_->mutex_);
    node_->durable_bytes = node_->bytes;
    return absl::OkStatus();
  }
  absl::Status Close() override { return Begin("Close"); }

 private:
  absl::Status Begin(std::string_view name) {
    MUSTER_RETURN_IF_ERROR(files_->Begin(name, path_, /*changes=*/true));
    const absl::MutexLock lock(&files_->mutex_);
    if (files_->crashes_ == crashes_) return absl::OkStatus();
    return absl::InternalError(fmt::format("cannot write {}: Stale file handle", path_));
  }

  MemoryFileSystem* const files_;
  const NodePtr node_;
  const std::string path_;
  const int64_t crashes_;
};

class MemoryFileSystem::Reader : public ReadableFile {
 public:
  Reader(MemoryFileSystem* files, NodePtr node, std::string path, int64_t size)
      : files_(files), node_(std::move(node)), path_(std::move(path)), size_(size) {}

  int64_t size() const override { return size_; }
  absl::Status ReadAt(int64_t offset, size_t size, char* out) const override {
    MUSTER_RETURN_IF_ERROR(files_->Begin("ReadAt", path_, /*changes=*/false));
    const absl::MutexLock lock(&files_->mutex_);
    const size_t end = node_->bytes.size();
    const size_t begin = std::min(static_cast<size_t>(offset), end);
    if (size > end - begin) {
      return absl::OutOfRangeError(
          fmt::format("cannot read {}: it ends {} bytes too early", path_, size - (end - begin)));
    }
    if (size > 0) std::memcpy(out, node_->bytes.data() + begin, size);
    return absl::OkStatus();
  }

 private:
  MemoryFileSystem* const files_;
  const NodePtr node_;
  const std::string path_;
  const int64_t size_;
};

MemoryFileSystem::MemoryFileSystem()
    : capacity_(std::numeric_limits<int64_t>::max()), root_(std::make_shared<Node>(true)) {}
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::SetBefore(std::function<absl::Status(const Operation&)> before) {
  const absl::MutexLock lock(&mutex_);
  before_ = std::move(before);
}

int64_t MemoryFileSystem::operations() const {
  const absl::MutexLock lock(&mutex_);
  return operations_;
}

void MemoryFileSystem::SetCapacity(int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  capacity_ = bytes;
}

absl::Status MemoryFileSystem::Begin(std::string_view name, const std::string& path, bool changes) {
  std::function<absl::Status(const Operation&)> before;
  Operation operation{0, name, path, changes};
  {
    const absl::MutexLock lock(&mutex_);
    operation.number = operations_++;
    if (telling_ || !before_) return absl::OkStatus();
    before = before_;
    telling_ = true;
  }
  const absl::Status status = before(operation);
  const absl::MutexLock lock(&mutex_);
  telling_ = false;
  return status;
}

MemoryFileSystem::NodePtr MemoryFileSystem::FindLocked(const std::string& path) const {
  NodePtr node = root_;
  for (size_t at = 0; at < path.size() && node != nullptr;) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, slash - at);
    at = slash + 1;
    if (name.empty() || name == ".") continue;
    const auto it = node->entries.find(name);
    node = it == node->entries.end() ? nullptr : it->second;
  }
  return node;
}

absl::StatusOr<MemoryFileSystem::Entry> MemoryFileSystem::ParentLocked(
    std::string_view doing, const std::string& path) const {
  const NodePtr parent = FindLocked(ParentPath(path));
  if (parent == nullptr || !parent->directory) return NotThere(doing, path);
  return Entry{parent, BaseName(path)};
}

absl::StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::Create(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("Create", path, /*changes=*/true));
  const absl::MutexLock lock(&mutex_);
  MUSTER_ASSIGN_OR_RETURN(const Entry entry, ParentLocked("create", path));
  NodePtr node = entry.node();
  if (node != nullptr && node->directory) {
    return absl::InternalError(fmt::format("cannot create {}: Is a directory", path));
  }
  if (node != nullptr) {
    node->bytes.clear();
  } else {
    node = std::make_shared<Node>(false);
    entry.directory->entries[entry.name] = node;
    pending_.push_back({nullptr, "", entry.directory, entry.name, node});
  }
  return std::make_unique<Writer>(this, node, path, crashes_);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> MemoryFileSystem::Open(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("Open", path, /*changes=*/false));
  const absl::MutexLock lock(&mutex_);
  const NodePtr node = FindLocked(path);
  if (node == nullptr) return NotThere("open", path);
  if (node->directory) {
    return absl::InternalError(fmt::format("cannot read {}: it is no ordinary file", path));
  }
  return std::make_unique<Reader>(this, node, path, static_cast<int64_t>(node->bytes.size()));
}

absl::StatusOr<std::vector<std::string>> MemoryFileSystem::List(const std::string& directory) {
  MUSTER_RETURN_IF_ERROR(Begin("List", directory, /*changes=*/false));
  const absl::MutexLock lock(&mutex_);
  const NodePtr node = FindLocked(directory);
  if (node == nullptr || !node->directory) return NotThere("list", directory);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

absl::StatusOr<bool> MemoryFileSystem::Exists(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("Exists", path, /*changes=*/false));
  const absl::MutexLock lock(&mutex_);
  return FindLocked(path) != nullptr;
}

absl::Status MemoryFileSystem::MakeDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("MakeDirectory", path, /*changes=*/true));
  const absl::MutexLock lock(&mutex_);
  if (const NodePtr node = FindLocked(path)) {
    if (node->directory) return absl::OkStatus();
    return absl::AlreadyExistsError(fmt::format("cannot make the directory {}: File exists", path));
  }
  MUSTER_ASSIGN_OR_RETURN(const Entry entry, ParentLocked("make the directory", path));
  const NodePtr node = std::make_shared<Node>(true);
  entry.directory->entries[entry.name] = node;
  pending_.push_back({nullptr, "", entry.directory, entry.name, node});
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  MUSTER_RETURN_IF_ERROR(Begin("Rename", from, /*changes=*/true));
  const absl::MutexLock lock(&mutex_);
  MUSTER_ASSIGN_OR_RETURN(const Entry source, ParentLocked("rename", from));
  const NodePtr node = source.node();
  if (node == nullptr) return NotThere("rename", from);
  MUSTER_ASSIGN_OR_RETURN(const Entry place, ParentLocked("rename", to));
  const NodePtr there = place.node();
  if (there != nullptr && (node->directory || there->directory)) {
    return absl::AlreadyExistsError(fmt::format("cannot make {}: File exists", to));
  }
  source.directory->entries.erase(source.name);
  place.directory->entries[place.name] = node;
  pending_.push_back({source.directory, source.name, place.directory, place.name, node});
  return absl::OkStatus();
}

void MemoryFileSystem::RemoveTreeLocked(NodePtr directory, std::string name) {
  const NodePtr node = directory->entries.at(name);
  while (!node->entries.empty()) RemoveTreeLocked(node, node->entries.begin()->first);
  directory->entries.erase(name);
  pending_.push_back({directory, name, nullptr, "", node});
}

absl::Status MemoryFileSystem::Remove(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("Remove", path, /*changes=*/true));
  const absl::MutexLock lock(&mutex_);
  MUSTER_ASSIGN_OR_RETURN(const Entry entry, ParentLocked("remove", path));
  if (entry.node() == nullptr) return NotThere("remove", path);
  RemoveTreeLocked(entry.directory, entry.name);
  return absl::OkStatus();
}

absl::Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Begin("SyncDirectory", path, /*changes=*/true));
  const absl::MutexLock lock(&mutex_);
  const NodePtr node = FindLocked(path);
  if (node == nullptr || !node->directory) return NotThere("sync", path);
  std::vector<Change> left;
  for (const Change& change : pending_) {
    if (change.from != node && change.to != node) {
      left.push_back(change);
      continue;
    }
    ApplyLocked(change);
    // Removes the pending change that moved the node to `from`, which it leaves now.
    std::erase_if(left, [&change](const Change& before) {
      return change.from != nullptr && before.node == change.node && before.to == change.from &&
             before.to_name == change.from_name;
    });
  }
  pending_ = std::move(left);
  return absl::OkStatus();
}

void MemoryFileSystem::ApplyLocked(const Change& change) {
  if (change.from != nullptr) {
    auto& entries = change.from->durable_entries;
    const auto it = entries.find(change.from_name);
    if (it != entries.end() && it->second == change.node) entries.erase(it);
  }
  if (change.to != nullptr) change.to->durable_entries[change.to_name] = change.node;
}

absl::Status MemoryFileSystem::Write(Node& file, const std::string& path,
                                     std::optional<int64_t> offset, std::string_view bytes) {
  const absl::MutexLock lock(&mutex_);
  const std::function<int64_t(const Node&)> used = [&used](const Node& node) {
    int64_t sum = static_cast<int64_t>(node.bytes.size());
    for (const auto& [name, child] : node.entries) sum += used(*child);
    return sum;
  };
  const int64_t left = capacity_ == std::numeric_limits<int64_t>::max()
                           ? capacity_
                           : std::max<int64_t>(0, capacity_ - used(*root_));
  const auto size = static_cast<int64_t>(file.bytes.size());
  const int64_t at = offset.value_or(size);
  const int64_t inside = std::max<int64_t>(0, size - at), hole = std::max<int64_t>(0, at - size);
  const size_t fits = std::min<uint64_t>(
      bytes.size(), static_cast<uint64_t>(inside) + std::max<int64_t>(0, left - hole));
  if (fits > 0) file.bytes.resize(std::max<size_t>(file.bytes.size(), at + fits));
  file.bytes.replace(std::min<size_t>(at, file.bytes.size()), fits, bytes.substr(0, fits));
  if (fits == bytes.size()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("cannot write {}: No space left on device", path));
}

void MemoryFileSystem::CrashNow(Crash crash, uint32_t seed) {
  const absl::MutexLock lock(&mutex_);
  std::mt19937 random(seed);
  const auto lucky = [&] {
    return crash == Crash::kAll || (crash == Crash::kRandom && random() % 2);
  };
  for (const Change& change : pending_) {
    if (lucky()) ApplyLocked(change);
  }
  pending_.clear();
  const std::function<void(Node&)> restart = [&](Node& node) {
    if (node.bytes != node.durable_bytes && lucky()) {
      const size_t done = node.durable_bytes.size(), all = node.bytes.size();
      const size_t written =
          crash == Crash::kAll || all <= done ? all : done + random() % (all - done + 1);
      std::string left = node.bytes.substr(0, written);
      if (crash == Crash::kRandom && random() % 2) left.resize(all, '\0');
      node.durable_bytes = std::move(left);
    }
    node.bytes = node.durable_bytes;
    node.entries = node.durable_entries;
    for (const auto& [name, child] : node.entries) restart(*child);
  };
  restart(*root_);
  ++crashes_;
}

absl::Status MemoryFileSystem::Overwrite(const std::string& path, std::string bytes) {
  const absl::MutexLock lock(&mutex_);
  const NodePtr node = FindLocked(path);
  if (node == nullptr || node->directory) return NotThere("overwrite", path);
  node->bytes = node->durable_bytes = std::move(bytes);
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
