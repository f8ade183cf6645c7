#include "deploy/report/html.h"

#include <gmock/gmock.h>

namespace muster::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Escaped, EscapesEverythingThatEndsATextOrAnAttribute) {
  EXPECT_EQ(Escaped("<script>&\"'"), "&lt;script&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Escaped("näme\n\t1 %"), "näme\n\t1 %");
  EXPECT_EQ(Escaped(std::string("a\0b\x1b\x7f", 5)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Escaped("\xff"), "\xEF\xBF\xBD");
}

TEST(EscapedJson, CannotEndTheScript) {
  EXPECT_EQ(EscapedJson(R"({"tag":"</script><!--"})"), R"({"tag":"\u003c/script>\u003c!--"})");
}

TEST(Filled, DoesNotLookIntoValues) {
  EXPECT_EQ(Filled("<p>{{A}}-{{B}}</p>", {{"A", "{{B}}"}, {"B", "b"}}), "<p>{{B}}-b</p>");
  EXPECT_EQ(Filled("nothing {{ here", {}), "nothing {{ here");
}

TEST(PolicyFor, NamesTheScriptByItsHash) {
  // printf abc | openssl dgst -sha256 -binary | base64
  EXPECT_THAT(PolicyFor("abc"), HasSubstr("script-src 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/"
                                          "YfIAFa0='"));
  EXPECT_THAT(PolicyFor("abc"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(PolicyFor("abc"), Not(HasSubstr("http")));
}

}  // namespace
}  // namespace muster::report
