#include "deploy/own_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace muster {

absl::StatusOr<std::string> OwnFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return ConfigurationError(
        fmt::format("cannot find the folder of this binary ({}): give --bin-dir", error.message()));
  }
  return self.parent_path().string();
}

void FindTorchByEnvironment() {
  const char* root = std::getenv("MUSTER_TORCH_ROOT");
  if (root == nullptr || *root == '\0') return;
  const char* paths = std::getenv("LD_LIBRARY_PATH");
  std::string all = fmt::format("{}/lib", root);
  if (paths != nullptr && *paths != '\0') all += fmt::format(":{}", paths);
  setenv("LD_LIBRARY_PATH", all.c_str(), /*overwrite=*/1);
}

}  // namespace muster
