#include "common/data/files/token_file.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TokenFileTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const TokenFile>> Open(const std::string& bytes,
                                                        const WindowOptions& options) {
    WriteBytes(path_, bytes);
    return TokenFile::Open(path_, options, "it: ");
  }
  static std::vector<int64_t> Read(const TokenFile& file, int64_t window, int64_t shift) {
    std::vector<int64_t> tokens(static_cast<size_t>(file.options().length));
    file.Read(window, shift, tokens.data());
    return tokens;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "t.bin";
};

TEST_F(TokenFileTest, WindowsAndWhatFollowsThem) {
  const auto file = Open("\1\2\3\4\5\6\7", {.length = 3, .stride = 2});
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->windows(), 2);
  EXPECT_THAT(Read(**file, 1, 0), ElementsAre(3, 4, 5));
  EXPECT_THAT(Read(**file, 1, 1), ElementsAre(4, 5, 6));
  const auto alone = Open("\1\2\3\4\5\6\7", {.length = 3, .stride = 2, .targets = false});
  ASSERT_EQ((*alone)->windows(), 3);
  EXPECT_THAT(Read(**alone, 2, 0), ElementsAre(5, 6, 7));
}

TEST_F(TokenFileTest, TokensAreUnsigned) {
  const std::string bytes("\xff\xff\1\0\xff\xff\xff\xff", 8);
  const auto shorts = Open(bytes, {.dtype = "uint16", .length = 3, .stride = 1});
  EXPECT_THAT(Read(**shorts, 0, 0), ElementsAre(65535, 1, 65535));
  const auto words = Open(bytes, {.dtype = "uint32", .length = 1, .stride = 1});
  EXPECT_THAT(Read(**words, 0, 1), ElementsAre(4294967295));
}

// A job may ask for any length.
TEST_F(TokenFileTest, NoWindowIsLongerThanTheFile) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t length : {int64_t{7}, int64_t{8}, most}) {
    const auto file = Open("1234567", {.length = length, .stride = 1});
    EXPECT_EQ(ExitCodeOf(file.status()), ExitCode::kDataDamaged) << length;
    EXPECT_THAT(std::string(Message(file.status())), HasSubstr("has 7 tokens"));
  }
  EXPECT_EQ((*Open("1234567", {.length = 7, .stride = most, .targets = false}))->windows(), 1);
  EXPECT_EQ(ExitCodeOf(Open("123", {.dtype = "uint16", .length = 1, .stride = 1}).status()),
            ExitCode::kDataDamaged);
}

}  // namespace
}  // namespace muster::data
