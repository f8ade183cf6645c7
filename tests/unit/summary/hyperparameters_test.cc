#include "common/summary/hyperparameters.h"

#include <gmock/gmock.h>

#include "proto/hparams.pb.h"

namespace muster::summary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(Hyperparameters, AreTheValuesThatPeopleChooseByTheirPaths) {
  const Json job = {{"optimizer", {{"name", "sgd"}, {"momentum", 0.9}}},
                    {"program_args", {{"deep", {{"er", {{"still", 1}}}}}, {"list", {1, 2}}}},
                    {"seed", 3},
                    {"max_steps", nullptr},
                    {"data", Json::object()},
                    {"model_dir", "somewhere"},
                    {"tls", {{"key", "secret"}}}};
  EXPECT_THAT(Hyperparameters(job),
              ElementsAre(Pair("optimizer.momentum", 0.9), Pair("optimizer.name", "sgd"),
                          Pair("program_args.deep.er", R"({"still":1})"),
                          Pair("program_args.list", "[1,2]"), Pair("seed", 3)));
  EXPECT_THAT(Hyperparameters(Json()), IsEmpty());
}

TEST(Hyperparameters, AreBounded) {
  Json job = {{"program_args", Json::object()}};
  for (int i = 0; i < 500; ++i) job["program_args"]["key" + std::to_string(i)] = i;
  EXPECT_THAT(Hyperparameters(job), SizeIs(200));
}

TEST(Hyperparameters, TravelInThePluginsFormat) {
  HParamsPluginData data;
  ASSERT_TRUE(data.ParseFromString(
      SessionStart({{"rate", 0.5}, {"flag", true}, {"text", std::string(600, 'x')}}, 7)));
  const SessionStartInfo& start = data.session_start_info();
  EXPECT_EQ(start.start_time_secs(), 7);
  EXPECT_EQ(start.hparams().at("rate").number_value(), 0.5);
  EXPECT_TRUE(start.hparams().at("flag").bool_value());
  EXPECT_THAT(start.hparams().at("text").string_value(), SizeIs(500));
  ASSERT_TRUE(data.ParseFromString(SessionEnd(false, 9)));
  EXPECT_EQ(data.session_end_info().status(), SessionEndInfo::FAILURE);
}

}  // namespace
}  // namespace muster::summary
