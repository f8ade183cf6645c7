// A folder of a test's own, which goes with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace muster {

class TestFolder {
 public:
  TestFolder() {
    std::string name = testing::TempDir() + "muster_bundle_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// A program that needs libbundle_sample_library.so, of its own folder, and libarchive.
inline const char* const kAProgram = MUSTER_SAMPLE_PROGRAM;
inline constexpr char kItsLibrary[] = "libbundle_sample_library.so";

}  // namespace muster
