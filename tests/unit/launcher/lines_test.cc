#include "deploy/launcher/processes/lines.h"

#include <gmock/gmock.h>

namespace muster::launcher {
namespace {

using testing::ElementsAre;

class Lines : public testing::Test {
 protected:
  void Append(std::string_view bytes) { splitter_.Append(bytes, take_); }
  void Finish() { splitter_.Finish(take_); }

  LineSplitter splitter_;
  std::vector<std::string> lines_;
  LineSplitter::OnLine take_ = [this](std::string_view line) { lines_.emplace_back(line); };
};

TEST_F(Lines, ComeWholeWhateverThePieces) {
  for (char c : std::string("one\ntwo\n\nth")) Append({&c, 1});
  EXPECT_THAT(lines_, ElementsAre("one", "two", ""));
  Append("ree\nfour\nfi");
  EXPECT_THAT(lines_, ElementsAre("one", "two", "", "three", "four"));
  Finish();
  EXPECT_EQ(lines_.back(), "fi");
  Finish();
  EXPECT_EQ(lines_.size(), 6u);
}

TEST_F(Lines, KeepTheLastVersionOfARedrawnOne) {
  Append("10 %\r20 %\r30 %\r\nwindows\r\n");
  EXPECT_THAT(lines_, ElementsAre("30 %", "windows"));
}

TEST_F(Lines, AreCutWhenTooLong) {
  const std::string longest(LineSplitter::kLongest, 'x');
  Append(longest + "\nshort\n");
  EXPECT_THAT(lines_, ElementsAre(longest, "short"));
  lines_.clear();
  Append(longest + longest + "yy\n");
  EXPECT_THAT(lines_, ElementsAre(longest, longest, "yy"));
  lines_.clear();
  splitter_ = LineSplitter(2 * longest.size());
  Append(longest + longest + "\n");
  EXPECT_THAT(lines_, ElementsAre(longest + longest));
}

}  // namespace
}  // namespace muster::launcher
