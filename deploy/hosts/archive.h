// Makes the tar archive that `muster launch --copy` sends to the hosts, and the commands that
// unpack it there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "deploy/launcher/signals.h"
#include "muster/status.h"

namespace muster::hosts {

struct Archive {
  std::string path;  // "/proc/self/fd/N". The file is deleted, but `file` keeps it open.
  Fd file;
  std::string digest;  // Digest of names, contents, modes and times.
  int64_t bytes = 0;
};

// Makes an archive of files and folders, with paths relative to the current folder. Returns
// ConfigurationError for a path that does not exist or is outside the current folder. Returns
// Preempted if a signal requests a stop.
absl::StatusOr<Archive> MakeArchive(const std::vector<std::string>& paths,
                                    launcher::SignalQueue& signals);

// Returns the path relative to `current`, an absolute path. Returns ConfigurationError if the path
// is outside `current`.
absl::StatusOr<std::string> PathWithin(const std::string& path, const std::string& current);

// Returns the folder on a host for an archive with this digest, quoted for the shell.
std::string ContentFolder(const std::string& digest);
// Returns the folder of --remote-folder, quoted for the shell. A relative folder is in the user's
// home folder, because the shell starts there.
std::string NamedFolder(const std::string& folder);

// A file in the folder of an archive. It describes the copied files, and its time of modification
// is that of the last use: UnpackOnceCommand and, while it runs, `muster run-tasks` set it.
inline constexpr char kCopyMark[] = ".muster-copy";
// Return commands for any login shell that unpack the archive from their standard input.
// UnpackOnceCommand unpacks nothing if the folder of this digest exists, and creates it atomically.
// It also removes the folders of other archives that were not used for kCopyUnusedDays, in which no
// process runs, and which have nothing but the copied files, unchanged. UnpackOverCommand
// overwrites existing files.
inline constexpr int kCopyUnusedDays = 14;
std::string UnpackOnceCommand(const std::string& digest);
std::string UnpackOverCommand(const std::string& folder);

}  // namespace muster::hosts
