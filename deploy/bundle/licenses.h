// Finds the license texts of the libraries in a bundle, which go along with them.
#pragma once

#include <map>
#include <string>

namespace muster {

// Where Debian's package manager keeps what it knows.
struct PackageFolders {
  std::string lists = "/var/lib/dpkg/info", documents = "/usr/share/doc";
};

// License texts of libraries, given by path: files by a name of their own. Reads the lists of
// Debian's package manager, and those of Python packages in the folder that a library is in. A
// library of neither has none.
std::map<std::string, std::string> FindLicenses(const std::map<std::string, std::string>& libraries,
                                                const PackageFolders& folders = {});

}  // namespace muster
