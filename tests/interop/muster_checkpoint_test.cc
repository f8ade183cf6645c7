// `muster checkpoint inspect` as a process: what it prints, its JSON contract, its exit codes.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/checkpoint/store.h"
#include "tests/interop/run_program.h"
#include "tests/paths.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing_support::ProgramResult;
using testing_support::RunProgram;
namespace fs = std::filesystem;

checkpoint::Snapshot MakeSnapshot(int64_t step) {
  checkpoint::Snapshot snapshot;
  snapshot.state.step = step;
  snapshot.state.epoch = 2;
  snapshot.state.offset = 1536;
  snapshot.state.examples = 64 * step;
  snapshot.state.global_batch_size = 64;
  snapshot.state.run_id = "00c0ffee";
  snapshot.state.validation_due = true;
  snapshot.state.job = {{"program", "linear"}, {"seed", 42}, {"optimizer", nullptr}};
  snapshot.state.versions = {{"muster", "0.1.0"}};
  auto memory = std::make_shared<std::string>(6000, 'm');
  snapshot.model.memory = memory;
  snapshot.model.tensors = {{{"fc.weight", checkpoint::DType::kFloat32, {10, 128}}, memory->data()},
                            {{"steps", checkpoint::DType::kInt64, {}}, memory->data()}};
  return snapshot;
}

class MusterCheckpoint : public testing::Test {
 protected:
  MusterCheckpoint() {
    std::string path = testing::TempDir() + "/muster_inspect_XXXXXX";
    model_dir_ = mkdtemp(path.data());
    const auto store =
        checkpoint::Store::Open(checkpoint::PosixFileSystem(), {folder(), "test", 3, {}}, -1);
    EXPECT_TRUE(store.ok()) << store.status();
    for (const int64_t step : {500, 1000, 1500}) {
      EXPECT_TRUE((*store)->Write(MakeSnapshot(step)).ok());
    }
    EXPECT_TRUE((*store)->MarkBest(1000, "loss", 0.25, false).value());
  }
  ~MusterCheckpoint() override { fs::remove_all(model_dir_); }

  std::string folder() const { return model_dir_ + "/checkpoints"; }
  static ProgramResult Inspect(std::vector<std::string> arguments) {
    std::vector<std::string> command = {testing_support::BinDir() + "/muster", "checkpoint",
                                        "inspect"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return RunProgram(command, {});
  }
  // Makes the model of step 1500 twelve bytes shorter.
  void Damage() const {
    const std::string path = folder() + "/step-00001500/model.safetensors";
    fs::resize_file(path, fs::file_size(path) - 12);
  }

  std::string model_dir_;
};

TEST_F(MusterCheckpoint, ListsAFolder) {
  for (const std::string& path : {model_dir_, folder(), folder() + "/"}) {
    const ProgramResult result = Inspect({path});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("checkpoint     bytes  health\n"));
    EXPECT_THAT(result.out, testing::ContainsRegex("step-00000500  [0-9],[0-9]{3}  whole\n"));
    EXPECT_THAT(result.out,
                testing::ContainsRegex("step-00001000  .*  whole; best \\(loss 0.25\\)\n"));
    EXPECT_THAT(result.out, testing::ContainsRegex("step-00001500  .*  whole; latest\n"));
  }
  EXPECT_THAT(Inspect({folder(), "--no-verify"}).out, HasSubstr("whole, by its sizes; latest\n"));
}

TEST_F(MusterCheckpoint, ShowsWhatOneHolds) {
  const std::string copy = model_dir_ + "/a copy";
  fs::copy(folder() + "/step-00001000", copy);
  for (const std::string& path : {folder() + "/step-00001000", copy}) {
    const ProgramResult result = Inspect({path});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(path + ": whole, "));
    EXPECT_THAT(result.out,
                HasSubstr(" bytes" + std::string(path == copy ? "" : "; best (loss 0.25)") +
                          "\n"
                          "step 1000: epoch 2 with 1,536 of its examples done, 64,000 in the whole "
                          "run\n"
                          "validation at this step was not complete\n"
                          "run 00c0ffee, global batch size 64\n"
                          "program: \"linear\"\n"
                          "seed: 42\n"
                          "muster 0.1.0\n"
                          "model.safetensors: 2 tensors, 5,128 bytes\n"
                          "  fc.weight  F32   [10, 128]  5,120 bytes\n"
                          "  steps      I64   []         8 bytes\n"
                          "optimizer.safetensors: 0 tensors, 0 bytes\n"));
  }
  EXPECT_THAT(Inspect({model_dir_, "--tensors"}).out, HasSubstr("step-00001500: whole"));
}

TEST_F(MusterCheckpoint, JsonContract) {
  const ProgramResult result = Inspect({model_dir_, "--json", "--tensors"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["path"], folder());
  ASSERT_EQ(json["checkpoints"].size(), 3u);
  const auto& one = json["checkpoints"][1];
  EXPECT_EQ(one["name"], "step-00001000");
  EXPECT_EQ(one["path"], folder() + "/step-00001000");
  EXPECT_EQ(one["step"], 1000);
  EXPECT_GT(one["bytes"], 5128);
  EXPECT_EQ(one["whole"], true);
  EXPECT_EQ(one["damage"], nullptr);
  EXPECT_EQ(one["latest"], false);
  EXPECT_EQ(one["best"], nlohmann::json({{"metric", "loss"}, {"value", 0.25}}));
  EXPECT_EQ(one["state"]["epoch"], 2);
  EXPECT_EQ(one["model"][0],
            nlohmann::json(
                {{"name", "fc.weight"}, {"dtype", "F32"}, {"shape", {10, 128}}, {"bytes", 5120}}));
  EXPECT_EQ(json["checkpoints"][2]["latest"], true);
  EXPECT_FALSE(
      nlohmann::json::parse(Inspect({model_dir_, "--json"}).out)["checkpoints"][0].contains(
          "state"));
}

TEST_F(MusterCheckpoint, DamageIsThree) {
  Damage();
  const ProgramResult result = Inspect({model_dir_});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("damaged: model.safetensors is 12 bytes too short ("));
  EXPECT_THAT(result.err,
              HasSubstr("muster checkpoint inspect: checkpoint step-00001500 is damaged: "
                        "model.safetensors is 12 bytes too short ("));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  const ProgramResult single = Inspect({folder() + "/step-00001500", "--json"});
  EXPECT_EQ(single.exit_code, 3);
  const auto json = nlohmann::json::parse(single.out);
  EXPECT_EQ(json["checkpoints"][0]["whole"], false);
  EXPECT_THAT(json["checkpoints"][0]["damage"].get<std::string>(), HasSubstr("12 bytes too short"));
  EXPECT_EQ(Inspect({folder() + "/step-00000500"}).exit_code, 0);

  // Behind the header, where only the checksum tells.
  std::fstream file(folder() + "/step-00000500/model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('x');
  file.close();
  EXPECT_EQ(Inspect({folder() + "/step-00000500"}).exit_code, 3);
  EXPECT_EQ(Inspect({folder() + "/step-00000500", "--no-verify"}).exit_code, 0);
}

TEST_F(MusterCheckpoint, RefusesWithOneLine) {
  fs::create_directory(model_dir_ + "/empty");
  std::ofstream(model_dir_ + "/file") << "x";
  const std::pair<std::string, std::string> cases[] = {
      {model_dir_ + "/none", model_dir_ + "/none is not there"},
      {model_dir_ + "/file", "is not a checkpoint and contains none: name a model_dir"},
      {model_dir_ + "/empty", "is not a checkpoint and contains none: name a model_dir"}};
  for (const auto& [path, why] : cases) {
    for (const char* form : {"--json", "--tensors"}) {
      const ProgramResult result = Inspect({path, form});
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, HasSubstr(why));
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
    }
  }
  fs::create_directories(model_dir_ + "/new/checkpoints");
  const ProgramResult result = Inspect({model_dir_ + "/new"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "muster checkpoint inspect: " + model_dir_ + "/new/checkpoints holds no checkpoint\n");
  EXPECT_EQ(Inspect({}).exit_code, 2);
}

}  // namespace
}  // namespace muster
