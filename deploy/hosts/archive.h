// Makes the tar archive that `muster launch --copy` sends to the hosts, and the shell commands that
// unpack the archive on a host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "deploy/launcher/processes/signals.h"
#include "muster/status.h"

namespace muster::hosts {

struct TarArchive {
  // "/proc/self/fd/N", where N is the descriptor in `file`. The file has no name in the file
  // system.
  std::string path;
  Fd file;
  std::string digest;  // A digest of the names, contents, modes and times of all files.
  int64_t bytes = 0;
};

// Makes an archive of files and folders. Paths in the archive are relative to the current folder.
// Returns ConfigurationError for a path that does not exist or is outside the current folder.
// Returns Preempted if a signal in `signals` requests a stop.
absl::StatusOr<TarArchive> MakeArchive(const std::vector<std::string>& paths,
                                       launcher::SignalQueue& signals);

// Returns `path` relative to the folder `current`, which is an absolute path. Returns
// ConfigurationError if `path` is outside `current`.
absl::StatusOr<std::string> PathWithin(const std::string& path, const std::string& current);

// Returns the folder on a host into which an archive with this digest is unpacked, quoted for the
// shell.
std::string ContentFolder(const std::string& digest);
// Returns `folder`, the value of --remote-folder, quoted for the shell. A relative folder is in the
// user's home folder on the host, because the shell starts there.
std::string NamedFolder(const std::string& folder);

// The name of a file in the folder into which an archive is unpacked. The file lists the copied
// files. The modification time of the file is the time when the folder was last used.
// UnpackOnceCommand sets this time, and a running `muster run-tasks` updates it.
inline constexpr char kCopyMark[] = ".muster-copy";
// The name of a file in a folder of the user's. UnpackOverCommand locks it while it unpacks.
inline constexpr char kCopyLock[] = ".muster-copy.lock";
// A copy that was not used for this many days may be removed.
inline constexpr int kCopyUnusedDays = 14;
// These functions return commands that unpack an archive from standard input. The commands work in
// any login shell. The command of UnpackOnceCommand creates ContentFolder(digest) atomically, and
// does nothing if the folder exists. The command also removes the folders of other archives under
// three conditions: the folder was not used for kCopyUnusedDays, no process runs in the folder, and
// the folder contains only the unchanged copied files. The remains of an interrupted copy or
// removal are removed after one day. The command of UnpackOverCommand unpacks into `folder` and
// overwrites existing files. Hosts may share `folder` and run this command at the same time.
std::string UnpackOnceCommand(const std::string& digest);
std::string UnpackOverCommand(const std::string& folder);

}  // namespace muster::hosts
