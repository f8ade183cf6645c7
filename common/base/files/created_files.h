// Opens and creates the files and folders of a job. FileMode determines who can access them. The
// functions do not follow symbolic links that another user may have planted.
//
// A job folder is a folder that the job file names, such as model_dir. The path of a job folder may
// contain symbolic links. Below a job folder, the functions refuse a symbolic link with ELOOP. All
// functions are thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster {

// The value of the job's key "security.file_mode".
enum class FileMode {
  // Only the user of this process can access a job folder that Muster creates. Existing folders
  // keep their permissions. On a new file, the group and other users have at most the permissions
  // that they have on the file's folder.
  kPrivate,
  // The user and the file's group can access new files. umask has no effect. If the set-group-ID
  // bit of the file's folder is set, the file has the group of the folder. Otherwise, it has the
  // group of the process.
  kGroup,
  kUmask,  // umask determines the permissions of new files.
};
// Indexed by FileMode.
inline constexpr const char* kFileModeNames[] = {"private", "group", "umask"};
// Returns a ConfigurationError for an unknown name. The caller puts the job's key before the
// error's message.
absl::StatusOr<FileMode> ParseFileMode(std::string_view name);
// Sets the mode of the whole process. Must be called before any file is created.
void SetFileMode(FileMode mode);

// Registers `path` as a job folder until the process ends.
void AddJobFolder(const std::string& path);

// Opens or creates a file: calls open(2) with O_CREAT | O_CLOEXEC and `flags`. On failure, returns
// an empty Fd and sets errno. Below a job folder, opens only regular files, and fails with ENXIO
// for a device or a pipe. Elsewhere, follows symbolic links, and opens devices and pipes. Never
// blocks on a pipe: if a pipe has no reader, opening it for writing fails with ENXIO.
Fd CreateFile(const std::string& path, int flags);
// Returns strerror(error), but a clearer text for ENXIO.
std::string FileErrorText(int error);
// Opens or creates a lock file for reading and writing. Only the user may open the file, so no
// other user can lock it. With FileMode::kGroup, the group may open the file too. If the file
// exists and belongs to this user, sets these permissions.
Fd CreateLockFile(const std::string& path);
// The last component of a path, and the open folder that contains this component, for openat(2),
// renameat(2) and unlinkat(2). If the component is a symbolic link, renameat and unlinkat affect
// the link. They do not affect the target of the link, which may belong to another user.
struct NameInFolder {
  Fd folder;
  std::string name;
};
// Splits `path`. If the folder cannot be opened, `folder` is empty and errno is set.
NameInFolder FindName(const std::string& path);
// Opens a folder for reading. On failure, returns an empty Fd and sets errno.
Fd OpenFolder(const std::string& path);
// Creates a folder below a job folder. Returns 0, or a value of errno. The value is EEXIST if
// `path` exists.
int MakeFolder(const std::string& path);
// Creates a folder and its missing parents. Does not change existing folders. With
// FileMode::kPrivate, only the user can access a new job folder and its new parents. Returns 0, or
// a value of errno.
int MakeFolders(const std::string& path);

}  // namespace muster
