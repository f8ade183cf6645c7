#include "muster/json.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using testing::HasSubstr;

TEST(ParseJson, NamesLineAndColumn) {
  const auto json = ParseJson("{\n  \"a\": 1,\n  \"b\" 2\n}", "job.json");
  ASSERT_FALSE(json.ok());
  EXPECT_THAT(std::string(Message(json.status())),
              HasSubstr("job.json is not valid JSON: line 3, column 7"));
  EXPECT_EQ(ExitCodeOf(json.status()), ExitCode::kConfiguration);
}

TEST(ParseJson, EmptyTextSaysSo) {
  EXPECT_THAT(std::string(Message(ParseJson(" \n", "TF_CONFIG").status())),
              HasSubstr("it is empty"));
}

TEST(ParseJson, AllowsCommentsAndRefusesDuplicateKeys) {
  EXPECT_TRUE(ParseJson("{ // why\n \"a\": 1 }", "x").ok());
  EXPECT_THAT(std::string(Message(ParseJson(R"({"a": {"b": 1, "b": 2}})", "x").status())),
              HasSubstr("key \"b\" appears twice"));
}

// Printing and copying a value take stack for each level of it.
TEST(ParseJson, RefusesWhatIsNestedTooDeep) {
  const auto nested = [](int levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_TRUE(ParseJson(nested(64), "x").ok());
  for (const int levels : {65, 100'000}) {
    const auto json = ParseJson(nested(levels), "job.json");
    if (json.ok()) {
      EXPECT_FALSE(Dump(*json).empty());
    }
    EXPECT_THAT(std::string(Message(json.status())),
                HasSubstr("job.json is nested deeper than 64 levels"));
  }
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THAT(std::string(Message(ParseJson(objects, "x").status())), HasSubstr("nested deeper"));
}

TEST(ParseJson, RefusesWhatIsTooLong) {
  EXPECT_THAT(std::string(Message(ParseJson(std::string((64 << 20) + 1, ' '), "x").status())),
              HasSubstr("x has more than 64 MiB"));
}

TEST(JsonObject, SuggestsTheNearestKey) {
  const Json json = {{"epocs", 3}};
  int64_t epochs = 0;
  std::string devices;
  JsonObject object(json, "");
  object.Read("epochs", &epochs).Read("devices", &devices);
  EXPECT_EQ(Message(object.Finish()), "unknown key \"epocs\", did you mean \"epochs\"?");
}

TEST(JsonObject, NamesTheDottedKeyAndTheType) {
  const Json json = {{"keep", "three"}};
  int keep = 0;
  JsonObject object(json, "checkpoint");
  object.Read("keep", &keep);
  EXPECT_EQ(Message(object.Finish()), "checkpoint.keep must be an integer, is \"three\"");
}

TEST(JsonObject, NullLeavesTheDefault) {
  const Json json = {{"keep", nullptr}};
  int keep = 7;
  EXPECT_TRUE(JsonObject(json, "").Read("keep", &keep).Finish().ok());
  EXPECT_EQ(keep, 7);
}

TEST(JsonObject, RefusesNumbersThatDoNotFit) {
  const Json json = {{"a", 1.5}, {"b", -1}, {"c", 3000000000}};
  int64_t a = 0;
  uint64_t b = 0;
  int c = 0;
  EXPECT_FALSE(JsonObject(json, "").Read("a", &a).Finish().ok());
  EXPECT_FALSE(JsonObject(json, "").Read("b", &b).Finish().ok());
  EXPECT_FALSE(JsonObject(json, "").Read("c", &c).Finish().ok());
}

TEST(Nearest, IsEmptyWhenNothingIsNear) { EXPECT_EQ(Nearest("zzzzzz", {"epochs", "devices"}), ""); }

}  // namespace
}  // namespace muster
