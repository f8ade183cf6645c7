// Finds the libraries that programs load, as the dynamic loader does, without running anything.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster {

// Where the loader looks besides the search paths of the files.
struct LoaderFolders {
  // LD_LIBRARY_PATH, before the search path (DT_RUNPATH) of a file.
  std::vector<std::string> first;
  // The system's folders, after it.
  std::vector<std::string> system;
};

// Reads LD_LIBRARY_PATH, and the folders of a file like /etc/ld.so.conf with the files that it
// includes. Adds the folders that the loader always searches.
LoaderFolders ReadLoaderFolders(const char* library_path, const std::string& ld_so_conf);

// Whether every host has the library itself: glibc's belong to the kernel and the loader of the
// host, and the driver's to the driver.
bool BelongsToHost(std::string_view name);

// The libraries that `files` load, and those that these load: paths by name (DT_NEEDED), without
// those that belong to the host. Also those that CUDA's libraries load by themselves when they are
// used. ConfigurationError names a library that is nowhere, and the file that needs it.
absl::StatusOr<std::map<std::string, std::string>> FindLibraries(
    const std::vector<std::string>& files, const LoaderFolders& folders);

}  // namespace muster
