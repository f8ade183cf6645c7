#include "common/base/files/created_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"

namespace muster {
namespace {

std::atomic<FileMode> current_mode = FileMode::kPrivate;

struct JobFolders {
  absl::Mutex mutex;
  std::vector<std::string> paths ABSL_GUARDED_BY(mutex);
};
JobFolders& Folders() {
  static JobFolders* const folders = new JobFolders;
  return *folders;
}

std::string Normal(const std::string& path) {
  std::error_code error;
  std::string normal = std::filesystem::absolute(path, error).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

// A path split at the folder below which links are not followed.
struct Place {
  bool in_job = false;
  std::string folder;
  std::vector<std::string> below;  // The folders between `folder` and `name`.
  std::string name;
};
Place PlaceOf(const std::string& path) {
  const std::string normal = Normal(path);
  std::string root;
  {
    JobFolders& folders = Folders();
    absl::MutexLock lock(&folders.mutex);
    for (const std::string& folder : folders.paths)
      if (normal.size() > folder.size() && normal.starts_with(folder + '/') &&
          folder.size() > root.size())
        root = folder;
  }
  Place place;
  const std::filesystem::path whole(normal);
  place.in_job = !root.empty();
  place.name = whole.filename().string();
  place.folder = root.empty() ? whole.parent_path().string() : root;
  if (!root.empty())
    for (const auto& part : whole.parent_path().lexically_relative(root))
      if (part != ".") place.below.push_back(part.string());
  return place;
}

constexpr int kReadFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

// Returns an empty Fd and sets errno if `name` is not a folder, or is a link.
Fd OpenFolderIn(int folder, const std::string& name) {
  Fd found(openat(folder, name.c_str(), kReadFolder | O_NOFOLLOW));
  struct stat info;
  // The kernel returns ENOTDIR for a link, which would be a misleading message.
  if (!found && errno == ENOTDIR && fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    errno = S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
  return found;
}

// Opens the folder that contains place.name. Returns an empty Fd and sets errno if a part of
// place.below is not a folder, or is a link.
Fd OpenParent(const Place& place) {
  Fd folder(open(place.folder.c_str(), kReadFolder));
  for (const std::string& name : place.below) {
    if (!folder) break;
    folder = OpenFolderIn(folder.get(), name);
  }
  return folder;
}

mode_t Permissions(int folder, mode_t all) {
  struct stat info;
  switch (current_mode.load()) {
    case FileMode::kGroup:
      return all & 0770;
    case FileMode::kUmask:
      return all;
    case FileMode::kPrivate:
      break;
  }
  return fstat(folder, &info) == 0 ? (all & (info.st_mode | 0700)) : (all & 0700);
}

// The time to wait for a file on which another host or process holds a lease, as with NFS. The
// kernel revokes a lease that is held for longer.
constexpr Duration kLeaseLimit = std::chrono::seconds(60);
constexpr Duration kLeaseLook = std::chrono::milliseconds(10);

// Opens place.name without blocking. A pipe in the place of a file must neither block the caller
// nor receive the data.
Fd OpenNow(int folder, const Place& place, int flags, mode_t mode) {
  flags |= O_CLOEXEC | O_NONBLOCK | (place.in_job ? O_NOFOLLOW : 0);
  const MonotonicTime until = Clock::now() + kLeaseLimit;
  Fd file(openat(folder, place.name.c_str(), flags, mode));
  while (!file && (errno == EINTR || (errno == EWOULDBLOCK && Clock::now() < until))) {
    if (errno == EWOULDBLOCK) std::this_thread::sleep_for(kLeaseLook);
    file = Fd(openat(folder, place.name.c_str(), flags, mode));
  }
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0) return {};
  if (place.in_job && !S_ISREG(info.st_mode)) {
    file.Reset();
    errno = ENXIO;
    return {};
  }
  const int set = fcntl(file.get(), F_GETFL);
  if (set < 0 || fcntl(file.get(), F_SETFL, set & ~O_NONBLOCK) != 0) return {};
  return file;
}

int MakeIn(int folder, const std::string& name, mode_t mode) {
  if (mkdirat(folder, name.c_str(), mode) != 0) return errno;
  if (current_mode == FileMode::kGroup) {
    const Fd made(openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info;  // For the set-group-ID bit, which the parent folder may have set.
    if (made && fstat(made.get(), &info) == 0) fchmod(made.get(), (info.st_mode & 07000) | mode);
  }
  return 0;
}

}  // namespace

absl::StatusOr<FileMode> ParseFileMode(std::string_view name) {
  const auto found = std::find(std::begin(kFileModeNames), std::end(kFileModeNames), name);
  if (found != std::end(kFileModeNames))
    return static_cast<FileMode>(found - std::begin(kFileModeNames));
  return ConfigurationError(fmt::format("must be one of {}, is \"{}\"",
                                        fmt::join(kFileModeNames, ", "), std::string(name)));
}

void SetFileMode(FileMode mode) { current_mode = mode; }

void AddJobFolder(const std::string& path) {
  if (path.empty()) return;
  const std::string normal = Normal(path);
  JobFolders& folders = Folders();
  absl::MutexLock lock(&folders.mutex);
  if (std::find(folders.paths.begin(), folders.paths.end(), normal) == folders.paths.end())
    folders.paths.push_back(normal);
}

Fd CreateFile(const std::string& path, int flags) {
  const Place place = PlaceOf(path);
  const Fd folder = OpenParent(place);
  if (!folder) return {};
  const mode_t mode = Permissions(folder.get(), 0666);
  const auto create = [&](int more) {
    return OpenNow(folder.get(), place, flags | more | O_CREAT, mode);
  };
  if (current_mode != FileMode::kGroup) return create(0);
  // Changes the mode only of a new file.
  Fd file = create(O_EXCL);
  if (!file && errno == EEXIST && (flags & O_EXCL) == 0) return create(0);
  if (file) fchmod(file.get(), mode);
  return file;
}

std::string FileErrorText(int error) {
  return error == ENXIO ? "it is no ordinary file" : std::strerror(error);
}

Fd CreateLockFile(const std::string& path) {
  Fd file = CreateFile(path, O_RDWR);
  struct stat info;
  if (file && fstat(file.get(), &info) == 0) {
    const mode_t mode = current_mode == FileMode::kGroup ? 0660 : 0600;
    if ((info.st_mode & 0777) != mode && info.st_uid == geteuid()) fchmod(file.get(), mode);
  }
  return file;
}

NameInFolder FindName(const std::string& path) {
  const Place place = PlaceOf(path);
  return {OpenParent(place), place.name};
}

Fd OpenFolder(const std::string& path) {
  const Place place = PlaceOf(path);
  if (!place.in_job) return Fd(open(path.c_str(), kReadFolder));
  const Fd parent = OpenParent(place);
  return parent ? OpenFolderIn(parent.get(), place.name) : Fd();
}

int MakeFolder(const std::string& path) {
  const Place place = PlaceOf(path);
  const Fd folder = OpenParent(place);
  if (!folder) return errno;
  return MakeIn(folder.get(), place.name, Permissions(folder.get(), 0777));
}

int MakeFolders(const std::string& path) {
  const Place place = PlaceOf(path);
  struct stat info;
  // Outside job folders, links are followed.
  if (!place.in_job && stat(path.c_str(), &info) == 0) return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
  const std::string normal = Normal(path);
  if (const Fd folder = OpenParent(place); folder) {
    mode_t mode = Permissions(folder.get(), 0777);
    if (!place.in_job && current_mode == FileMode::kPrivate) mode = 0700;
    const int error = MakeIn(folder.get(), place.name, mode);
    if (error != EEXIST) return error;
    const int flags = place.in_job ? AT_SYMLINK_NOFOLLOW : 0;
    if (fstatat(folder.get(), place.name.c_str(), &info, flags) != 0) return errno;
    return S_ISDIR(info.st_mode) ? 0 : S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
  } else if (errno != ENOENT) {
    return errno;
  }
  const std::string parent = std::filesystem::path(normal).parent_path().string();
  if (parent == normal) return ENOENT;
  const int error = MakeFolders(parent);
  return error != 0 ? error : MakeFolders(path);
}

}  // namespace muster
