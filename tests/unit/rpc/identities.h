// TLS identities of a cluster's tasks, for tests. Each object has its own run key.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "common/security/identity.h"
#include "common/security/run_key.h"

namespace muster::rpc {

class TestIdentities {
 public:
  TestIdentities() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    EXPECT_TRUE(security::WriteNewRunKey(folder_ + "/key").ok());
  }
  ~TestIdentities() { std::filesystem::remove_all(folder_); }

  std::shared_ptr<security::Identity> Of(const std::string& task) const {
    security::IdentityOptions options;
    options.self = {"0123456789abcdef", task};
    options.run_key = folder_ + "/key";
    auto identity = security::Identity::Make(options);
    EXPECT_TRUE(identity.ok()) << identity.status();
    return *std::move(identity);
  }

 private:
  std::string folder_ = std::filesystem::temp_directory_path() / "muster-identities-XXXXXX";
};

}  // namespace muster::rpc
