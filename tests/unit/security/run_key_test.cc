#include "common/security/run_key.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace muster::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(64, 'a'), kOther(64, 'B');

class RunKeyTest : public ::testing::Test {
 protected:
  RunKeyTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~RunKeyTest() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/key";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string folder_ = std::filesystem::temp_directory_path() / "muster-run-key-XXXXXX";
};

TEST_F(RunKeyTest, OneOrTwoLines) {
  const auto one = ReadRunKeys(Write(kKey + "\n"));
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].data()[0], 0xaa);
  EXPECT_EQ(FormatRunKey((*one)[0]).text(), kKey + "\n");
  const auto two = ReadRunKeys(Write(kKey + "\r\n\n" + kOther + "\n"));
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[1].data()[31], 0xbb);
}

TEST_F(RunKeyTest, RefusesInOneSentenceThatDoesNotShowTheKey) {
  for (const std::string& text :
       {std::string(), std::string("\n"), kKey.substr(1), kKey + "0", kKey.substr(1) + "g",
        kKey + "\n" + kKey + "\n" + kOther, std::string(100000, 'a')}) {
    const auto keys = ReadRunKeys(Write(text));
    ASSERT_FALSE(keys.ok()) << text.size();
    EXPECT_EQ(ExitCodeOf(keys.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(keys.status())), HasSubstr(folder_));
    EXPECT_THAT(std::string(Message(keys.status())), Not(HasSubstr("aaaaaaaa")));
  }
}

TEST_F(RunKeyTest, RefusesWhatAllUsersMayReadAndFollowsLinks) {
  EXPECT_THAT(std::string(Message(ReadRunKeys(Write(kKey, 0644)).status())),
              HasSubstr("chmod 600"));
  const std::string path = Write(kKey, 0640);
  EXPECT_TRUE(ReadRunKeys(path).ok());
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  EXPECT_TRUE(ReadRunKeys(link).ok());
  EXPECT_THAT(std::string(Message(ReadRunKeys(folder_ + "/none").status())),
              HasSubstr("cannot read"));
  EXPECT_THAT(std::string(Message(ReadRunKeys(folder_).status())), HasSubstr("is no file"));
}

TEST_F(RunKeyTest, ANewKeyIsItsOwnersAloneAndOverwritesNothing) {
  const std::string path = folder_ + "/a/b/run.key";
  ASSERT_TRUE(WriteNewRunKey(path).ok());
  struct stat about {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const auto first = ReadRunKeys(path);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(Message(WriteNewRunKey(path))), HasSubstr("exists"));
  EXPECT_EQ(FormatRunKey((*ReadRunKeys(path))[0]).text(), FormatRunKey((*first)[0]).text());
  const std::string other = folder_ + "/other";
  ASSERT_TRUE(WriteNewRunKey(other).ok());
  EXPECT_NE(FormatRunKey((*ReadRunKeys(other))[0]).text(), FormatRunKey((*first)[0]).text());
}

TEST_F(RunKeyTest, WhereTheKeyIs) {
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("MUSTER_RUN_KEY_FILE");
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_EQ(RunKeyPath(""), "");
  ASSERT_TRUE(WriteNewRunKey(DefaultRunKeyPath()).ok());
  EXPECT_EQ(RunKeyPath(""), folder_ + "/.config/muster/run.key");
  setenv("MUSTER_RUN_KEY_FILE", "/k", 1);
  EXPECT_EQ(RunKeyPath(""), "/k");
  EXPECT_EQ(RunKeyPath("/configured"), "/configured");
  unsetenv("MUSTER_RUN_KEY_FILE");
}

TEST_F(RunKeyTest, TheLaunchersDescriptorIsReadFromItsBeginningAndForgotten) {
  FILE* file = fopen(Write(kKey + "\n").c_str(), "r");
  fgetc(file);
  setenv(kRunKeyDescriptor, std::to_string(fileno(file)).c_str(), 1);
  const std::optional<int> descriptor = TakeRunKeyDescriptor();
  ASSERT_EQ(descriptor, fileno(file));
  EXPECT_EQ(getenv(kRunKeyDescriptor), nullptr);
  EXPECT_TRUE(ReadRunKeys(*descriptor).ok());
  fclose(file);
  setenv(kRunKeyDescriptor, "7x", 1);
  EXPECT_EQ(TakeRunKeyDescriptor(), std::nullopt);
}

TEST_F(RunKeyTest, AReadingTokenIsAnHmacOfTheKey) {
  const auto keys = ParseRunKeys(std::string(64, '0'), "x");
  ASSERT_TRUE(keys.ok());
  // printf status | openssl mac -digest SHA256 -macopt hexkey:KEY HMAC
  EXPECT_EQ(ReadingToken(keys->front()),
            "55fcfab3a764b7bc276bfbba23210c0c00599249324cabb90ca196d565519fbf");
}

}  // namespace
}  // namespace muster::security
