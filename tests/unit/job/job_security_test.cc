#include "common/job/job_security.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace muster {
namespace {

class JobSecurityTest : public ::testing::Test {
 protected:
  JobSecurityTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~JobSecurityTest() override { std::filesystem::remove_all(folder_); }

  absl::Status Load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream(folder_ + "/job.json") << text;
    return LoadJobOrSecurity(folder_ + "/job.json", overrides, &job_);
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-job-security-XXXXXX";
  Job job_;
};

TEST_F(JobSecurityTest, AJobThatIsAcceptedIsWhole) {
  ASSERT_TRUE(Load(R"({"program": "linear", "max_steps": 7})").ok());
  EXPECT_EQ(job_.max_steps, 7);
}

TEST_F(JobSecurityTest, OfOneThatIsRefusedTheSecurityIsLeft) {
  EXPECT_FALSE(Load(R"({"program": "linear", "epoch": 1, "folder": "keys",
                        "security": {"insecure": true, "key_file": "run.key"},
                        "tls": {"certificate": "a.pem", "key": "a.key", "authority": 3}})",
                    {"tls.authority=b.pem", "no assignment"})
                   .ok());
  EXPECT_TRUE(job_.security.insecure);
  EXPECT_EQ(job_.security.key_file, "run.key");
  EXPECT_EQ(job_.tls.certificate, "a.pem");
  EXPECT_EQ(job_.tls.key, "a.key");
  EXPECT_EQ(job_.tls.authority, "b.pem");
  EXPECT_EQ(job_.folder, folder_ + "/keys");
}

TEST_F(JobSecurityTest, OfWhatCannotBeReadTheCommandLineIsLeft) {
  for (const char* text : {"", "{", "[1]", "3", R"({"security": 7, "tls": [], "folder": 1})",
                           R"({"security": {"insecure": "yes", "key_file": 1}})"}) {
    EXPECT_FALSE(Load(text).ok()) << text;
    EXPECT_FALSE(job_.security.insecure) << text;
    EXPECT_EQ(job_.security.key_file + job_.tls.certificate, "") << text;
    EXPECT_EQ(job_.folder, folder_) << text;
  }
  EXPECT_FALSE(Load("{", {"security.insecure=true"}).ok());
  EXPECT_TRUE(job_.security.insecure);
}

}  // namespace
}  // namespace muster
