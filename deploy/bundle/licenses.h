// Finds the license texts of the libraries in a bundle.
#pragma once

#include <map>
#include <string>

namespace muster {

// The folders of Debian's package manager.
struct PackageFolders {
  std::string lists = "/var/lib/dpkg/info", documents = "/usr/share/doc";
};

// Returns the paths of license texts. The keys are unique file names for the bundle. `libraries`
// maps names to paths. Finds the package of each library in two places: the file lists of Debian
// packages, and the file lists of the Python packages in the library's site-packages folder. A
// library that is in no list adds no license.
std::map<std::string, std::string> FindLicenses(const std::map<std::string, std::string>& libraries,
                                                const PackageFolders& folders = {});

}  // namespace muster
