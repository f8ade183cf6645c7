// Tests which values are quoted and which are blocks. tests/k8s/manifest_command_test.py reads
// whole manifests back.
#include "deploy/manifest/yaml.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

std::string Value(const std::string& text) { return ToYaml({{"key", text}}); }

TEST(Yaml, BlockStyle) {
  const OrderedJson json = {{"kind", "Job"},
                            {"spec", {{"args", OrderedJson::array({"--job", "x"})}, {"count", 2}}},
                            {"rules", OrderedJson::array({{{"a", 1}, {"b", {{"c", true}}}}})},
                            {"none", OrderedJson::array()},
                            {"empty", OrderedJson::object()}};
  EXPECT_EQ(ToYaml(json),
            "kind: Job\n"
            "spec:\n"
            "  args:\n"
            "  - \"--job\"\n"
            "  - x\n"
            "  count: 2\n"
            "rules:\n"
            "- a: 1\n"
            "  b:\n"
            "    c: true\n"
            "none: []\n"
            "empty: {}\n");
}

TEST(Yaml, ListsInLists) {
  const OrderedJson inner = OrderedJson::array({"a", "b"});
  EXPECT_EQ(ToYaml({{"key", OrderedJson::array({inner, OrderedJson::array()})}}),
            "key:\n- - a\n  - b\n- []\n");
}

TEST(Yaml, QuotesWhatHasAnotherMeaning) {
  for (const char* plain : {"muster", "/dev/shm", "apps/v1", "Recreate", "a.b-c_d"})
    EXPECT_EQ(Value(plain), std::string("key: ") + plain + "\n");
  // Numbers, booleans, null, dates, indicators, and a key of YAML 1.1.
  for (const char* quoted :
       {"",    "1",   "1e3",  "0x1f", "2026-01-01", "true", "No", "off",       "null",
        "y",   "- a", "a: b", "a #b", "*a",         "&a",   "!a", "{a}",       "[a]",
        "'a'", "%a",  "@a",   "~",    ".inf",       "a ",   " a", "key=value", "100m"})
    EXPECT_EQ(Value(quoted), "key: " + OrderedJson(quoted).dump() + "\n");
}

TEST(Yaml, LinesAreABlock) {
  EXPECT_EQ(Value("a\n b\n\nc\n"), "key: |\n  a\n   b\n\n  c\n");
  EXPECT_EQ(Value("a\nb"), "key: |-\n  a\n  b\n");
  EXPECT_EQ(Value("a\n\n"), "key: |+\n  a\n\n");
  // A block could not carry these as they are.
  for (const char* text : {" a\nb", "\na", "a\r\nb\r\n", "a\tb\n", "a\n\x01"})
    EXPECT_EQ(Value(text), "key: " + Dump(OrderedJson(text)) + "\n");
}

TEST(Yaml, EscapesWhatYamlReadsInAnotherWay) {
  // Ends of lines of YAML 1.1, a byte order mark, control characters, and no characters at all.
  const std::pair<std::string, std::string> cases[] = {
      {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}, {"\u0085", "\\u0085"}, {"\ufeff", "\\ufeff"},
      {"\x7f", "\\u007f"},   {"\u009f", "\\u009f"}, {"\ufffe", "\\ufffe"}, {"\uffff", "\\uffff"}};
  for (const auto& [character, escaped] : cases) {
    EXPECT_EQ(Value("a" + character + "b"), "key: \"a" + escaped + "b\"\n");
    EXPECT_EQ(Value("// a" + character + "b\n{}\n"), "key: \"// a" + escaped + "b\\n{}\\n\"\n");
    EXPECT_EQ(ToYaml({{"k" + character, 1}}), "\"k" + escaped + "\": 1\n");
  }
  // Their neighbours stay in a block.
  const std::string text = "\u00a0 \u00e9 \u2027 \u202a \ufefe \ufffd \U0001f600 \U0002feff\n";
  EXPECT_EQ(Value(text), "key: |\n  " + text);
}

}  // namespace
}  // namespace muster
