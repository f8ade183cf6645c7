#include "deploy/commands/launch/launch_key.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/security/run_key.h"

namespace muster::launcher {
namespace {

using ::testing::HasSubstr;

constexpr char kTfConfig[] =
    R"({"cluster": {"chief": ["127.0.0.1:5000"], "worker": ["127.0.0.1:5001"]},
        "task": {"type": "chief", "index": 0}})";

class LaunchKeyTest : public ::testing::Test {
 protected:
  LaunchKeyTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    job_.folder = folder_;
    key_file_ = NewKey("run.key");
  }
  ~LaunchKeyTest() override { std::filesystem::remove_all(folder_); }

  std::string NewKey(const std::string& name) {
    EXPECT_TRUE(security::WriteNewRunKey(folder_ + "/" + name).ok());
    return folder_ + "/" + name;
  }
  // Returns the authority of the launcher's certificate. "" if the tasks use no certificates.
  std::string AuthorityWith(const std::string& key_file) {
    const auto key = LaunchKey::Make(job_, key_file);
    EXPECT_TRUE(key.ok()) << key.status();
    if (!key.ok()) return "";
    environment_ = key->environment();
    const auto identity = key->IdentityIn(kTfConfig);
    EXPECT_TRUE(identity.ok()) << identity.status();
    if (!identity.ok() || *identity == nullptr) return "";
    EXPECT_EQ((*identity)->self().task, "launcher");
    return (*identity)->Authorities()[0];
  }
  std::string RefusalWith(const std::string& key_file) {
    const auto key = LaunchKey::Make(job_, key_file);
    EXPECT_EQ(ExitCodeOf(key.status()), ExitCode::kConfiguration) << key.status();
    return std::string(Message(key.status()));
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-launch-key-XXXXXX";
  std::string key_file_;
  std::map<std::string, std::string> environment_;
  Job job_;
};

TEST_F(LaunchKeyTest, EachLaunchHasANewOne) {
  const std::string first = AuthorityWith("");
  EXPECT_TRUE(environment_.contains("MUSTER_RUN_KEY_FD"));
  EXPECT_NE(first, AuthorityWith(""));
}

TEST_F(LaunchKeyTest, OfAFileTheTasksReceiveThePath) {
  EXPECT_NE(AuthorityWith(key_file_), "");
  EXPECT_THAT(environment_, ::testing::ElementsAre(std::pair("MUSTER_RUN_KEY_FILE", key_file_)));
}

// The launcher derives its identity from the job like the tasks (IdentityFor).
TEST_F(LaunchKeyTest, OfTheJobIsTheLaunchersToo) {
  const std::string theirs = AuthorityWith(key_file_);
  job_.security.key_file = "run.key";
  EXPECT_EQ(AuthorityWith(""), theirs);
  EXPECT_TRUE(environment_.empty());
  job_.security.insecure = true;  // A key takes precedence over this option.
  EXPECT_EQ(AuthorityWith(""), theirs);
  job_.security.key_file.clear();
  EXPECT_EQ(AuthorityWith(""), "");
  EXPECT_TRUE(environment_.empty());
}

// Tests the key that tasks on other hosts get.
TEST_F(LaunchKeyTest, HasATextUnlessTheTasksHaveAFileOfTheirOwn) {
  const auto text = [this](const std::string& key_file) -> std::string {
    const auto key = LaunchKey::Make(job_, key_file);
    if (!key.ok()) return "refused";
    const auto secret = key->Text();
    EXPECT_TRUE(secret.ok()) << secret.status();
    return secret.ok() && *secret ? std::string((*secret)->text()) : "none";
  };
  EXPECT_TRUE(security::ParseRunKeys(text(""), "a new key").ok());
  EXPECT_NE(text(""), text(""));
  std::string line;
  std::ifstream file(key_file_);
  std::getline(file, line);
  EXPECT_EQ(text(key_file_), line + "\n");
  job_.security.key_file = "run.key";
  EXPECT_EQ(text(""), "none");
  job_.security.key_file.clear();
  job_.security.insecure = true;
  EXPECT_EQ(text(""), "none");
}

TEST_F(LaunchKeyTest, OfEachTaskIsTheLaunchersByItsName) {
  const std::string theirs = AuthorityWith(NewKey("launcher-0.key"));
  job_.security.key_file = "{type}-{index}.key";
  EXPECT_EQ(AuthorityWith(""), theirs);
  job_.security.key_file = "{type}.key";
  EXPECT_THAT(RefusalWith(""), HasSubstr("cannot read the run key " + folder_ + "/launcher.key"));
}

TEST_F(LaunchKeyTest, OfTheJobAndOfTheCommandLineAreOneTooMany) {
  job_.security.key_file = "run.key";
  EXPECT_THAT(RefusalWith(key_file_), HasSubstr("--key-file is given, but the tasks use the "
                                                "job's security.key_file"));
  job_.security.key_file.clear();
  job_.security.insecure = true;
  EXPECT_THAT(RefusalWith(key_file_), HasSubstr("security.insecure"));
}

TEST_F(LaunchKeyTest, InCertificatesPlaceThereIsNone) {
  job_.tls.certificate = "{type}-{index}.pem";
  EXPECT_THAT(RefusalWith(""), HasSubstr("takes no certificates (tls.certificate)"));
  EXPECT_THAT(RefusalWith(key_file_), HasSubstr("takes no certificates (tls.certificate)"));
}

}  // namespace
}  // namespace muster::launcher
