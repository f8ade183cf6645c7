#include "common/base/peer_text.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

TEST(PeerTextTest, PlainTextStaysAsItIs) {
  EXPECT_EQ(SanitizePeerText(""), "");
  EXPECT_EQ(SanitizePeerText("worker 1: no GPU"), "worker 1: no GPU");
  EXPECT_EQ(SanitizePeerText("Größe, 数, \xf0\x9f\x98\x80"), "Größe, 数, \xf0\x9f\x98\x80");
}

TEST(PeerTextTest, NoLineIsForgedAndNoCursorMoved) {
  EXPECT_EQ(SanitizePeerText("lost\nROOT CAUSE: worker 1"), "lost\\nROOT CAUSE: worker 1");
  EXPECT_EQ(SanitizePeerText("\x1b[2Jgone\r"), "\\x1b[2Jgone\\r");
  EXPECT_EQ(SanitizePeerText(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(SanitizePeerText("\xc2\x9b"
                             "31m"),
            "\\xc2\\x9b31m");  // CSI of 8 bits
  EXPECT_EQ(SanitizePeerText("\xe2\x80\xae"
                             "txt.exe"),
            "\\xe2\\x80\\xaetxt.exe");                             // right to left
  EXPECT_EQ(SanitizePeerText("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");  // a line separator
  EXPECT_EQ(SanitizePeerText("bad \xff"), "bad \xef\xbf\xbd");
}

TEST(PeerTextTest, LongTextIsCut) {
  EXPECT_EQ(SanitizePeerText(std::string(2000, 'x')), std::string(1024, 'x') + "...");
  EXPECT_LE(SanitizePeerText(std::string(1024, '\x01')).size(), 1024u + 3);
  EXPECT_EQ(SanitizePeerText("ääää", 5), "ää...");
  EXPECT_LE(SanitizePeerText(std::string(100 << 20, '\n')).size(), 1024u + 3);
}

TEST(LineBudgetTest, ABurstAndThenOneInEachInterval) {
  LogRateLimiter budget(3, std::chrono::seconds(1));
  MonotonicTime now = Clock::now();
  int64_t left_out = -1;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.Take(&left_out, now));
  EXPECT_EQ(left_out, 0);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(budget.Take(&left_out, now));
  now += std::chrono::seconds(1);
  EXPECT_TRUE(budget.Take(&left_out, now));
  EXPECT_EQ(left_out, 5);
  EXPECT_FALSE(budget.Take(&left_out, now));
}

}  // namespace
}  // namespace muster
