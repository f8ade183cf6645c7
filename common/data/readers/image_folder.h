// The pictures of a folder that has one folder for each class.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::data {

struct ImageFolderFiles {
  struct File {
    std::string path;   // Relative to the folder.
    int64_t label = 0;  // Index of the class in `classes`.
    uint64_t hash = 0;
  };
  std::vector<std::string> classes;  // Sorted.
  std::vector<File> files;
};

// Lists the pictures by class, folder and name. With `mixed` they are in the order of a hash of the
// names, which is the same on every host. Returns a DataError for a class without pictures or a
// picture that cannot be read.
absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path, bool mixed);

}  // namespace muster::data
