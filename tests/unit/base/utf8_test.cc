#include "common/base/json/utf8.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ValidUtf8, KeepsWhatIsValid) {
  using std::string_literals::operator""s;
  for (const std::string& text : {""s, "a \"quoted\" \\ line\n\t\x01\x7f"s, "nul \0 within"s,
                                  "caf\xc3\xa9"s, "\xe2\x82\xac"s, "\xf0\x9f\x98\x80"s})
    EXPECT_EQ(ValidUtf8(text), text);
}

TEST(ValidUtf8, ReplacesTheRest) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(ValidUtf8("caf\xe9.jpg"), "caf" + mark + ".jpg");
  EXPECT_EQ(ValidUtf8("cut within: \xe2\x82"), "cut within: " + mark);
  EXPECT_EQ(ValidUtf8("\xff\xfe"), mark + mark);
  for (const char* text : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
    const std::string valid = ValidUtf8(text);
    EXPECT_EQ(valid.rfind(mark, 0), 0u) << valid;
    EXPECT_EQ(ValidUtf8(valid), valid);
  }
}

}  // namespace
}  // namespace muster
