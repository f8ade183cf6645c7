// How Muster makes, renames and removes the files and folders of a job: readable for nobody who
// could not read the folder that they are in, and through no symbolic link that somebody put in
// their place.
//
// The folders that a job names (model_dir) are reached as they are named, links and all. Below
// them, links are not followed: a name that is one is an error, ELOOP. So are those that are
// removed and renamed: what a link leads to belongs to somebody else. All functions may be called
// from any thread; errors are errno's.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "muster/status.h"

namespace muster {

// "security.file_mode".
enum class FileMode {
  // A job's folder that Muster makes is its user's alone. In any folder, what is made has no
  // permission that the folder has not: one that was there is as open as its owner made it.
  kPrivate,
  kGroup,  // for the user and the folder's group, whatever umask says
  kUmask,  // as umask says
};
inline constexpr const char* kFileModeNames[] = {"private", "group", "umask"};  // by FileMode
// A ConfigurationError has no place in it.
absl::StatusOr<FileMode> ParseFileMode(std::string_view name);
// For the whole process; before anything is made.
void SetFileMode(FileMode mode);
FileMode CurrentFileMode();

// Below this folder nothing that this process makes goes through a link. Its folder for good.
void AddJobFolder(const std::string& path);

// open(2) with O_CREAT | O_CLOEXEC and `flags`; no file (errno) where that fails. Outside of the
// jobs' folders a link is followed, and a device or a pipe that somebody reads is written to: the
// user named it. In them only an ordinary file is opened, else ENXIO. Waits for no reader of a
// pipe.
Fd CreateFile(const std::string& path, int flags);
// strerror, with words for ENXIO that say what is wrong with a file.
std::string FileErrorText(int error);
// A file that only its user may open (FileMode kGroup: and its group), and whose lock nobody else
// can hold for that reason. One that was there and is this user's is made so.
Fd CreateLockFile(const std::string& path);
// The folder that the last name of `path` is in, and that name: for openat(2) and its kind, which
// reach it through no link of a job's folder. None (errno) where there is no such folder.
struct NameInFolder {
  Fd folder;
  std::string name;
};
NameInFolder FindName(const std::string& path);
// A folder to read. Below a job's folder it is no link itself. None: errno.
Fd OpenFolder(const std::string& path);
// mkdir(2), of a folder in a job's folder. 0, or errno; EEXIST where something is there, also a
// folder.
int MakeFolder(const std::string& path);
// With its parents; those that are there are left as they are. New ones above or at a job's folder
// are private. 0, or errno.
int MakeFolders(const std::string& path);

}  // namespace muster
