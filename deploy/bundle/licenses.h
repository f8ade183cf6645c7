// Finds the license texts of the libraries in a bundle.
#pragma once

#include <map>
#include <string>

namespace muster {

// The folders of Debian's package manager.
struct PackageFolders {
  std::string lists = "/var/lib/dpkg/info", documents = "/usr/share/doc";
};

// Returns paths of license texts, keyed by a unique file name. `libraries` maps names to paths.
// Searches the file lists of Debian packages, and those of the Python packages in the site-packages
// folder that contains a library. Finds no license for a library that is in neither.
std::map<std::string, std::string> FindLicenses(const std::map<std::string, std::string>& libraries,
                                                const PackageFolders& folders = {});

}  // namespace muster
