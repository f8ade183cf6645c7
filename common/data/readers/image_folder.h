// The pictures of a folder with one folder for each class.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::data {

struct ImageFolderFiles {
  struct File {
    std::string path;   // relative to the folder
    int64_t label = 0;  // of the class, its place in `classes`
    uint64_t hash = 0;
  };
  std::vector<std::string> classes;  // sorted
  std::vector<File> files;
};

// By class, folder and name; or `mixed`: in the order of a hash of the names, the same on every
// host. DataErrors name what is wrong: a class without pictures, a picture of a kind that is not
// read.
absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path, bool mixed);

}  // namespace muster::data
