// What `muster launch --copy` sends to the hosts: one tar archive, and the commands that unpack it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "deploy/launcher/signals.h"
#include "muster/status.h"

namespace muster::hosts {

struct Archive {
  std::string path;  // Of a deleted file that `file` keeps, "/proc/self/fd/N".
  Fd file;
  std::string digest;  // Of names, contents, modes and times.
  int64_t bytes = 0;
};

// Makes the archive of files and folders. Returns ConfigurationError for a path that does not exist
// or that is outside of the current folder: on the hosts it has the same place in their folder.
absl::StatusOr<Archive> MakeArchive(const std::vector<std::string>& paths,
                                    launcher::SignalQueue& signals);

// Returns the path relative to `current`, an absolute path. ConfigurationError if it is outside.
absl::StatusOr<std::string> PathWithin(const std::string& path, const std::string& current);

// The folder of an archive, named by its content, as text for the shell of a host.
std::string ContentFolder(const std::string& digest);
// `folder` is one that the user names. A relative one is in the user's home folder.
std::string NamedFolder(const std::string& folder);

// Commands for any login shell, with the archive as their input. The first one does nothing where
// the folder of this content exists, and never leaves a part of it there. The second one writes
// over what is there.
std::string UnpackOnceCommand(const std::string& digest);
std::string UnpackOverCommand(const std::string& folder);

}  // namespace muster::hosts
