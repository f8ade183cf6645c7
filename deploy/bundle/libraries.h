// Finds the libraries that programs load, by the rules of the dynamic loader. Runs no program.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster {

// The folders that the loader searches in addition to the search paths in the files (DT_RPATH and
// DT_RUNPATH).
struct LoaderFolders {
  // The folders of LD_LIBRARY_PATH, which are searched before a file's DT_RUNPATH.
  std::vector<std::string> first;
  // The system's folders, which are searched after a file's DT_RUNPATH.
  std::vector<std::string> system;
};

// `first` of the result has the folders in `library_path`, the value of LD_LIBRARY_PATH (null if
// the variable is not set). `system` has the folders in `ld_so_conf`, a file in the format of
// /etc/ld.so.conf, and in the files that `ld_so_conf` includes. `system` also has the folders that
// the loader always searches.
LoaderFolders ReadLoaderFolders(const char* library_path, const std::string& ld_so_conf);

// Returns true for a library that a bundle must not contain. glibc's libraries must match the
// host's loader. The libraries of NVIDIA's driver must match the host's kernel driver.
bool BelongsToHost(std::string_view name);

// Returns the paths of all libraries that `files` load, directly or indirectly, keyed by name
// (DT_NEEDED). Includes the libraries that CUDA's libraries load at run time with dlopen. Leaves
// out the libraries for which BelongsToHost is true. If a library is missing, returns a
// ConfigurationError with its name and the file that needs it.
absl::StatusOr<std::map<std::string, std::string>> FindLibraries(
    const std::vector<std::string>& files, const LoaderFolders& folders);

}  // namespace muster
