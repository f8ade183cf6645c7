// Creates, renames and removes the files and folders of a job. What it creates is readable only by
// users who can read the containing folder. It does not follow symbolic links that another user may
// have planted.
//
// Paths to the folders that a job names (model_dir) may contain links. Below these folders, links
// are not followed. Opening or creating a name that is a link is an error, ELOOP. Removing or
// renaming such a name affects the link and not its target, which may belong to another user. All
// functions are thread-safe. Errors are errno's.
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
  // that its folder lacks. An existing folder keeps the permissions that its owner set.
  kPrivate,
  kGroup,  // For the user and the folder's group, whatever umask is.
  kUmask,  // According to umask.
};
inline constexpr const char* kFileModeNames[] = {"private", "group", "umask"};  // By FileMode.
// Returns a ConfigurationError that does not name the place of the setting.
absl::StatusOr<FileMode> ParseFileMode(std::string_view name);
// Sets the mode of the whole process. Must be called before any file is created.
void SetFileMode(FileMode mode);
FileMode CurrentFileMode();

// Registers a job folder: below it, this process creates nothing through a link. Cannot be undone.
void AddJobFolder(const std::string& path);

// Calls open(2) with O_CREAT | O_CLOEXEC and `flags`. On failure the result is empty and errno is
// set. Outside the job folders links are followed, and a device or a pipe with a reader is written
// to, because the user named the path. Below a job folder only a regular file is opened; anything
// else gives ENXIO. Never waits for the reader of a pipe.
Fd CreateFile(const std::string& path, int flags);
// strerror, with a message for ENXIO that says what is wrong with the file.
std::string FileErrorText(int error);
// Creates a file that only its user may open (with FileMode kGroup also its group), so that no
// other user can hold its lock. The permissions of an existing file of this user are changed
// accordingly.
Fd CreateLockFile(const std::string& path);
// The folder that holds the last name of `path`, and that name, for openat(2) and similar calls.
// Links below a job folder are not followed. `folder` is empty (errno is set) if there is no such
// folder.
struct NameInFolder {
  Fd folder;
  std::string name;
};
NameInFolder FindName(const std::string& path);
// Opens a folder for reading. Below a job folder it must not be a link. On failure the result is
// empty and errno is set.
Fd OpenFolder(const std::string& path);
// Calls mkdir(2) for a folder in a job folder. Returns 0 or errno. Returns EEXIST if anything
// exists there, also a folder.
int MakeFolder(const std::string& path);
// Creates a folder with its parents. Existing ones are unchanged. With FileMode kPrivate, new
// folders that contain a job folder, and the job folder itself, are accessible only to the user.
// Returns 0 or errno.
int MakeFolders(const std::string& path);

}  // namespace muster
