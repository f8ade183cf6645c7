// Lists the pictures of a folder that has one subfolder for each class.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::data {

struct ImageFolderFiles {
  struct File {
    std::string path;   // The path relative to the folder.
    int64_t label = 0;  // The index of the class in `classes`.
    uint64_t hash = 0;
  };
  std::vector<std::string> classes;  // Sorted.
  std::vector<File> files;
};

// Lists the pictures in the order of class, folder and name. If `mixed` is true, sorts the pictures
// by a hash of their names instead. In both cases, the order is the same on every host. Returns a
// DataError if a class has no pictures, or if a picture has a format that cannot be read.
absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path, bool mixed);

}  // namespace muster::data
