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
// maps names to paths. For a library in a site-packages folder, searches the file lists of the
// Python packages in that folder. For any other library, searches the file lists of Debian
// packages. A library that is in no list adds no license.
std::map<std::string, std::string> FindLicenses(const std::map<std::string, std::string>& libraries,
                                                const PackageFolders& folders = {});

}  // namespace muster
