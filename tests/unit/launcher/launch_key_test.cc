#include "deploy/launch_key.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/cluster/cluster_config.h"
#include "common/security/authority.h"
#include "tests/unit/base/logged_lines.h"

namespace muster {
namespace {

constexpr char kTfConfig[] =
    R"({"cluster": {"chief": ["127.0.0.1:5000"], "worker": ["127.0.0.1:5001"]},
        "task": {"type": "chief", "index": 0}})";

class LaunchKeyTest : public ::testing::Test {
 protected:
  LaunchKeyTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    job_.folder = folder_;
    job_.tls.certificate = "{type}-{index}.pem";
    job_.tls.key = "{type}-{index}.key";
    job_.tls.authority = "authority.pem";
  }
  ~LaunchKeyTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& whose, const std::string& name) {
    const std::string digest = ParseTfConfig(kTfConfig)->cluster.Digest();
    const auto made = authority_->Issue(security::UriOf({digest, whose}), {"127.0.0.1"});
    std::ofstream(folder_ + "/" + name + ".pem") << made->certificate;
    std::ofstream(folder_ + "/" + name + ".key") << made->key;
    std::ofstream(folder_ + "/authority.pem") << made->authorities;
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-launch-key-XXXXXX";
  const absl::StatusOr<security::Authority> authority_ = security::Authority::Random();
  Job job_;
};

TEST_F(LaunchKeyTest, ACertificateOfTheLaunchersIsItsOwn) {
  Write("launcher", "launcher-0");
  const testing::LoggedLines log;
  const auto key = LaunchKey::Make(job_, "");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_TRUE(key->environment().empty());
  const auto identity = key->IdentityIn(kTfConfig);
  ASSERT_TRUE(identity.ok()) << identity.status();
  ASSERT_NE(*identity, nullptr);
  EXPECT_EQ((*identity)->self().task, "launcher");
  EXPECT_TRUE((*identity)->from_files());
  EXPECT_EQ(log.text(), "");
}

TEST_F(LaunchKeyTest, WithoutOneALineSaysSo) {
  const testing::LoggedLines log;
  const auto key = LaunchKey::Make(job_, "");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(*key->IdentityIn(kTfConfig), nullptr);
  EXPECT_EQ(log.text(), "the launcher has no certificate (" + folder_ +
                            "/launcher-0.pem is not there): a chief notices by silence that a task "
                            "is lost\n");
}

// One file for all tasks, or somebody else's.
TEST_F(LaunchKeyTest, AnotherTasksCertificateIsNone) {
  Write("worker:0", "launcher-0");
  const testing::LoggedLines log;
  EXPECT_EQ(*LaunchKey::Make(job_, "")->IdentityIn(kTfConfig), nullptr);
  EXPECT_EQ(log.Count("is not of type \"launcher\""), 1);
}

TEST_F(LaunchKeyTest, WithoutCertificatesThereIsANewKey) {
  job_.tls = {};
  const auto key = LaunchKey::Make(job_, "");
  ASSERT_TRUE(key.ok());
  const auto identity = key->IdentityIn(kTfConfig);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_FALSE((*identity)->from_files());
  EXPECT_TRUE(key->environment().contains("MUSTER_RUN_KEY_FD"));
}

}  // namespace
}  // namespace muster
