// The file systems for which the contract tests run. Each has an empty folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::checkpoint::testing_support {

class Bench {
 public:
  virtual ~Bench() = default;
  virtual FileSystem& files() = 0;
  virtual std::string folder() const = 0;
};

class PosixBench : public Bench {
 public:
  PosixBench() {
    std::string path = ::testing::TempDir() + "/muster_checkpoint_XXXXXX";
    folder_ = mkdtemp(path.data()) != nullptr ? path : "";
  }
  ~PosixBench() override { (void)PosixFileSystem().Remove(folder_); }
  FileSystem& files() override { return PosixFileSystem(); }
  std::string folder() const override { return folder_; }

 private:
  std::string folder_;
};

class MemoryBench : public Bench {
 public:
  MemoryBench() {
    EXPECT_TRUE(files_.MakeDirectory("/disk").ok());
    EXPECT_TRUE(files_.SyncDirectory("/").ok());
  }
  FileSystem& files() override { return files_; }
  std::string folder() const override { return "/disk"; }

 private:
  MemoryFileSystem files_;
};

// The fixture of a test suite for every file system. Instantiate the suite with testing::Bool() and
// BenchName.
class OnEveryFileSystem : public ::testing::TestWithParam<bool> {
 protected:
  OnEveryFileSystem() {
    if (GetParam()) {
      bench_ = std::make_unique<PosixBench>();
    } else {
      bench_ = std::make_unique<MemoryBench>();
    }
  }
  FileSystem& files() { return bench_->files(); }
  std::string In(const std::string& name) const { return bench_->folder() + "/" + name; }

 private:
  std::unique_ptr<Bench> bench_;
};

inline std::string BenchName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Posix" : "Memory";
}

}  // namespace muster::checkpoint::testing_support
