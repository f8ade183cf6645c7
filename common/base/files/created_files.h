// Opens and creates the files and folders of a job. A new file is readable only by users who can
// read its folder. The functions do not follow symbolic links that another user may have planted.
//
// A job folder is a folder that a job names (model_dir). The path to a job folder may contain
// links. Below a job folder, links are not followed: opening or creating a name that is a link
// fails with ELOOP. All functions are thread-safe. They report errors as values of errno.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster {

// The job's "security.file_mode".
enum class FileMode {
  // A job folder that Muster creates is accessible only to its user. A new file has no permission
  // that its folder lacks. An existing folder keeps its permissions.
  kPrivate,
  kGroup,  // New files are accessible to the user and the folder's group. Ignores umask.
  kUmask,  // New files have the permissions that umask leaves.
};
inline constexpr const char* kFileModeNames[] = {"private", "group", "umask"};  // By FileMode.
// A ConfigurationError does not name the job's key: the caller adds it.
absl::StatusOr<FileMode> ParseFileMode(std::string_view name);
// Sets the mode of the whole process. Must be called before any file is created.
void SetFileMode(FileMode mode);
FileMode CurrentFileMode();

// Registers a job folder for the rest of the process's life.
void AddJobFolder(const std::string& path);

// Opens or creates a file: calls open(2) with O_CREAT | O_CLOEXEC and `flags`. On failure, returns
// an empty Fd and sets errno. Below a job folder, opens only regular files and fails with ENXIO for
// others. Elsewhere, opens any path that the user named: follows links, and opens devices and pipes
// that have a reader. Never waits for the reader of a pipe.
Fd CreateFile(const std::string& path, int flags);
// Returns strerror(error), with a clearer message for ENXIO.
std::string FileErrorText(int error);
// Opens or creates a file that only its user may open (with FileMode kGroup, also its group). Other
// users therefore cannot hold its lock. If the file exists and belongs to this user, changes its
// permissions accordingly.
Fd CreateLockFile(const std::string& path);
// A path split for openat(2), renameat(2) and unlinkat(2): its last name, and the folder that
// contains it. Removing or renaming a link in this way affects the link and not its target, which
// may belong to another user.
struct NameInFolder {
  Fd folder;
  std::string name;
};
// Returns an empty `folder` and sets errno if the folder cannot be opened.
NameInFolder FindName(const std::string& path);
// Opens a folder for reading. On failure, returns an empty Fd and sets errno.
Fd OpenFolder(const std::string& path);
// Creates a folder below a job folder. Returns 0 or errno, EEXIST if `path` exists.
int MakeFolder(const std::string& path);
// Creates a folder and its missing parents. Does not change existing ones. With FileMode kPrivate,
// a new job folder and its new parents are accessible only to the user. Returns 0 or errno.
int MakeFolders(const std::string& path);

}  // namespace muster
