// SavedState, the manifest and the names: there and back, and what is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing::HasSubstr;
using testing_support::MakeSnapshot;

SavedState ThereAndBack(const SavedState& state) {
  const auto back = SavedStateFromJson(Json::parse(ToJson(state).dump(2)));
  EXPECT_TRUE(back.ok()) << back.status();
  return back.ok() ? *back : SavedState();
}

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

TEST(SavedState, EveryFieldComesBack) {
  SavedState state = MakeSnapshot(77).state;
  state.validation_due = true;
  state.loss_scaler = {65536, 3};
  state.step = std::numeric_limits<int64_t>::max();
  state.job = {{"seed", 18446744073709551615u}, {"learning_rate", {{"initial", 1e-3}}}};
  const SavedState back = ThereAndBack(state);
  EXPECT_EQ(ToJson(back), ToJson(state));
  EXPECT_EQ(back.step, state.step);
  EXPECT_TRUE(back.validation_due);
  EXPECT_FALSE(back.test_due);
  EXPECT_EQ(back.run_id, "run1");
  EXPECT_EQ(back.versions.at("muster"), "0.1.0");
}

TEST(SavedState, WhatOnlySomeRunsHaveIsThereOnlyWhereTheyHaveIt) {
  const Json plain = ToJson(MakeSnapshot(77).state);
  for (const char* key :
       {"epoch_values", "datasets", "stream", "batch_steps", "finished", "skipped_steps"})
    EXPECT_FALSE(plain.contains(key)) << key << ": files of before are read, and written";
  SavedState state = MakeSnapshot(77).state;
  state.extras.epoch_values["MAE(X, F(G(X)))"] = {1.0 / 3, 12};
  state.extras.epoch_values["broken"] = {-std::numeric_limits<double>::infinity(), 1};
  state.extras.datasets["more"] = {2, 7, true};
  state.extras.stream = {{3, 40}};
  state.extras.batch_steps = 6;
  state.extras.batch_steps_done = 5;
  state.extras.finished = true;
  state.extras.skipped = {17, 3};
  EXPECT_EQ(ThereAndBack(state).extras, state.extras);
  for (const char* wrong :
       {R"({"epoch_values": {"x": [1]}})", R"({"epoch_values": []})", R"({"datasets": {"x": 3}})",
        R"({"stream": {"epoch": 1}})", R"({"batch_steps": {"of": -1, "done": 0}})",
        R"({"finished": 1})", R"({"skipped_steps": 3})", R"({"skipped_steps": {"total": -1}})"}) {
    Json json = plain;
    json.update(Json::parse(wrong));
    const auto read = SavedStateFromJson(json);
    EXPECT_EQ(ExitCodeOf(read.status()), ExitCode::kDataDamaged) << wrong;
    EXPECT_THAT(std::string(Message(read.status())), HasSubstr(Json::parse(wrong).begin().key()));
  }
}

TEST(SavedState, NumbersComeBackBitByBit) {
  using Limits = std::numeric_limits<double>;
  SavedState state;
  state.epoch_metric_sums = {0.0,
                             -0.0,
                             1.0 / 3,
                             Limits::max(),
                             Limits::lowest(),
                             Limits::min(),
                             Limits::denorm_min(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             9007199254740993.0,
                             1e22,
                             5e-324};
  std::mt19937_64 random(5);
  while (state.epoch_metric_sums.size() < 5000) {
    double value;
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof bits);
    if (!std::isnan(value)) state.epoch_metric_sums.push_back(value);
  }
  state.epoch_loss_sum = Limits::quiet_NaN();
  const SavedState back = ThereAndBack(state);
  ASSERT_EQ(back.epoch_metric_sums.size(), state.epoch_metric_sums.size());
  for (size_t i = 0; i < state.epoch_metric_sums.size(); ++i) {
    ASSERT_EQ(Bits(back.epoch_metric_sums[i]), Bits(state.epoch_metric_sums[i]))
        << state.epoch_metric_sums[i];
  }
  EXPECT_TRUE(std::isnan(back.epoch_loss_sum));
}

TEST(SavedState, WhatIsWrongIsNamed) {
  const Json good = ToJson(MakeSnapshot(5).state);
  for (const auto& [key, value] : good.items()) {
    Json missing = good;
    missing.erase(key);
    const auto state = SavedStateFromJson(missing);
    EXPECT_TRUE(absl::IsDataLoss(state.status())) << key;
    EXPECT_THAT(state.status().ToString(), HasSubstr("no field \"" + key + "\""));
    if (key == "job") continue;
    Json wrong = good;
    wrong[key] = Json::array({Json::object()});
    EXPECT_THAT(SavedStateFromJson(wrong).status().ToString(),
                HasSubstr("its field \"" + key + "\" must be"));
  }
  Json json = good;
  json["step"] = -1;
  EXPECT_THAT(SavedStateFromJson(json).status().ToString(), HasSubstr("is -1"));
  json = good;
  json["step"] = 1.5;
  EXPECT_TRUE(absl::IsDataLoss(SavedStateFromJson(json).status()));
  json = good;
  json["new"] = 1;
  EXPECT_THAT(SavedStateFromJson(json).status().ToString(), HasSubstr("\"new\""));
  json["format_version"] = 2;
  EXPECT_THAT(SavedStateFromJson(json).status().ToString(), HasSubstr("format_version is 2"));
  EXPECT_TRUE(absl::IsDataLoss(SavedStateFromJson(Json::array()).status()));
  EXPECT_TRUE(absl::IsDataLoss(SavedStateFromJson(Json()).status()));
}

TEST(FixedDifference, NamesTheKey) {
  const Json job = {{"program", "linear"},
                    {"program_args", {{"size", 3}, {"deep", {{"x", 1}}}}},
                    {"optimizer", {{"name", "sgd"}, {"momentum", 0.9}}},
                    {"global_batch_size", 64},
                    {"per_replica_batch_size", nullptr},
                    {"seed", 42},
                    {"epochs", 3}};
  const auto with = [&job](const std::string& pointer, const Json& value) {
    Json other = job;
    other[Json::json_pointer(pointer)] = value;
    return FirstFixedDifference(job, other);
  };
  EXPECT_EQ(FirstFixedDifference(job, job), "");
  EXPECT_EQ(with("/epochs", 9), "");
  EXPECT_EQ(with("/learning_rate", 0.1), "");
  EXPECT_EQ(with("/seed", 42.0), "");
  EXPECT_EQ(with("/per_replica_batch_size", nullptr), "");
  EXPECT_EQ(with("/program", "fashion_mnist"), "program");
  EXPECT_EQ(with("/program_args/deep/x", 2), "program_args.deep.x");
  EXPECT_EQ(with("/program_args/new", 2), "program_args.new");
  EXPECT_EQ(with("/optimizer/momentum", 0.8), "optimizer.momentum");
  EXPECT_EQ(with("/optimizer", "adam"), "optimizer");
  EXPECT_EQ(with("/optimizer", nullptr), "optimizer");
  EXPECT_EQ(with("/global_batch_size", 32), "global_batch_size");
  EXPECT_EQ(with("/per_replica_batch_size", 32), "per_replica_batch_size");
  EXPECT_EQ(with("/seed", 43), "seed");
}

TEST(Names, ThereAndBack) {
  EXPECT_EQ(CheckpointName(500), "step-00000500");
  for (const int64_t step :
       {int64_t{0}, int64_t{99'999'999}, int64_t{100'000'000}, int64_t{1} << 62}) {
    EXPECT_EQ(StepOfName(CheckpointName(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-500", "step-000000500", "step-0000050x", "step--0000500",
        "step-+0000500", "damaged-step-00000500", "step-99999999999999999999"}) {
    EXPECT_EQ(StepOfName(name), -1) << name;
  }
}

TEST(ManifestText, ThereAndBack) {
  Manifest manifest;
  manifest.step = 500;
  manifest.files = {
      {kModelFile, {1 << 20, 0xdeadbeef}}, {kOptimizerFile, {0, 1}}, {kStateFile, {7, 0}}};
  const auto back = ParseManifest(ManifestText(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ManifestText(*back), ManifestText(manifest));
  EXPECT_EQ(back->bytes(), (1 << 20) + 7);
  EXPECT_EQ(back->files.at(kModelFile).crc32c, 0xdeadbeef);
}

}  // namespace
}  // namespace muster::checkpoint
