// Finds the libraries that programs load. Follows the rules of the dynamic loader, but runs no
// program.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster {

// The folders that the loader searches besides the search paths of the files.
struct LoaderFolders {
  // LD_LIBRARY_PATH. Searched before a file's DT_RUNPATH.
  std::vector<std::string> first;
  // The system's folders. Searched after a file's DT_RUNPATH.
  std::vector<std::string> system;
};

// Returns the folders in `library_path`, the value of LD_LIBRARY_PATH (null if unset), and in
// `ld_so_conf`, a file like /etc/ld.so.conf, with its includes. Adds the folders that the loader
// always searches.
LoaderFolders ReadLoaderFolders(const char* library_path, const std::string& ld_so_conf);

// Returns true if a bundle must not contain the library: glibc's libraries must match the host's
// loader, and NVIDIA's driver libraries must match the host's driver.
bool BelongsToHost(std::string_view name);

// Returns the paths of the libraries that `files` load, directly or indirectly, keyed by name
// (DT_NEEDED). Includes the libraries that CUDA's libraries load later by name. Leaves out those
// for which BelongsToHost is true. Returns a ConfigurationError that names a missing library and
// the file that needs it.
absl::StatusOr<std::map<std::string, std::string>> FindLibraries(
    const std::vector<std::string>& files, const LoaderFolders& folders);

}  // namespace muster
