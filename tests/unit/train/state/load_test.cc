// Weights that a run begins with.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "common/checkpoint/safetensors.h"
#include "common/train/state/snapshot.h"
#include "common/train/state/weights.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::MemoryFileSystem;
using ::testing::HasSubstr;
using testing::TestProgram;

using Named = std::vector<std::pair<std::string, at::Tensor>>;

void Write(MemoryFileSystem& files, const std::string& path, const Named& tensors) {
  checkpoint::TensorSet set;
  std::vector<at::Tensor> memory;
  for (const auto& [name, tensor] : tensors) {
    memory.push_back(tensor.contiguous());
    checkpoint::Tensor& one = set.tensors.emplace_back();
    one.name = name;
    one.dtype = tensor.scalar_type() == at::kFloat      ? DType::kFloat32
                : tensor.scalar_type() == at::kHalf     ? DType::kFloat16
                : tensor.scalar_type() == at::kBFloat16 ? DType::kBFloat16
                : tensor.scalar_type() == at::kDouble   ? DType::kFloat64
                                                        : DType::kInt64;
    one.shape = tensor.sizes().vec();
    one.data = static_cast<const char*>(memory.back().const_data_ptr());
  }
  ASSERT_TRUE(checkpoint::MakeDirectories(files, checkpoint::ParentPath(path)).ok());
  auto file = files.Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  checkpoint::ChecksummedFile out(*std::move(file));
  ASSERT_TRUE(checkpoint::WriteSafetensors(set, out).ok());
  ASSERT_TRUE(out.Finish().ok());
}

void WriteText(MemoryFileSystem& files, const std::string& path, const std::string& text) {
  auto file = files.Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(text).ok() && (*file)->Sync().ok());
}

class LoadedWeights : public ::testing::Test {
 protected:
  // Models "net" (w [2], tied to "alias", count) and "head" (b [1]).
  absl::Status Load(const Json& load, std::function<void(Builder&)> ask = {}) {
    job_.program = "test";
    job_.load = load;
    auto made = Replica::Make(
        job_,
        [&] {
          auto program = std::make_unique<TestProgram>();
          program->on_build = [=](TestProgram& self, Builder& builder) {
            self.second = std::make_shared<testing::Tensors>();
            const at::Tensor w = self.model->parameter("w", at::zeros({2}));
            self.model->parameter("alias", w);
            self.model->buffer("count", at::zeros({}, at::kLong));
            self.second->parameter("b", at::zeros({1}));
            builder.model("net", self.model);
            builder.model("head", self.second);
            builder.optimizer("sgd", {"net", "head"}, "sgd", 0.1);
            builder.dataset(Split::kTrain, testing::Tensors2(at::ones({1, 2}), at::ones({1})));
            if (ask) ask(builder);
          };
          program_ = program.get();
          return program;
        },
        c10::Device(at::kCPU));
    EXPECT_TRUE(made.ok()) << made.status();
    replica_ = *std::move(made);
    return LoadWeights(files_, job_, replica_.get());
  }
  std::string Refusal(const Json& load, ExitCode code) {
    const absl::Status status = Load(load);
    EXPECT_EQ(ExitCodeOf(status), code) << status;
    EXPECT_EQ(std::string(Message(status)).find('\n'), std::string::npos);
    return std::string(Message(status));
  }
  at::Tensor W() { return (*program_->model)["w"].detach(); }

  MemoryFileSystem files_;
  Job job_;
  std::unique_ptr<Replica> replica_;
  TestProgram* program_ = nullptr;
};

const at::Tensor kW = at::tensor({1.5f, -2.25f});
const at::Tensor kCount = at::full({}, 7, at::kLong);

TEST_F(LoadedWeights, OfEveryFloatingTypeBecomeTheModels) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    Write(files_, "/w/a.safetensors", {{"w", kW.to(type)}, {"count", kCount}});
    const absl::Status loaded = Load({{"net", "/w/a.safetensors"}});
    ASSERT_TRUE(loaded.ok()) << loaded << " (tied: one name is enough)";
    EXPECT_TRUE(at::equal(W(), kW));
    EXPECT_EQ(W().scalar_type(), at::kFloat);
    EXPECT_EQ((*program_->model)["count"].item<int64_t>(), 7);
    EXPECT_TRUE(at::equal((*program_->second)["b"], at::zeros({1}))) << "the other model";
  }
}

TEST_F(LoadedWeights, ArePrefixedAndRenamed) {
  Write(files_, "/w/a.safetensors",
        {{"model.layer0.gamma", kW}, {"model.count", kCount}, {"head.b", at::ones({1})}});
  const absl::Status loaded = Load({{"net",
                                     {{"path", "/w/a.safetensors"},
                                      {"prefix", "model."},
                                      {"rename", {{"^layer(\\d)\\.", ""}, {"gamma$", "w"}}}}},
                                    {"head", {{"path", "/w/a.safetensors"}, {"prefix", "head."}}}});
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(at::equal(W(), kW));
  EXPECT_EQ((*program_->second)["b"].item<float>(), 1.f);
}

TEST_F(LoadedWeights, OfSeveralFilesAndFolders) {
  Write(files_, "/w/model-1.safetensors", {{"w", kW}, {"elsewhere", kW}});
  Write(files_, "/w/model-2.safetensors", {{"count", kCount}});
  WriteText(files_, "/w/model.safetensors.index.json",
            R"({"metadata": {}, "weight_map": {"w": "model-1.safetensors",)"
            R"( "count": "model-2.safetensors"}})");
  for (const char* path : {"/w/model.safetensors.index.json", "/w"}) {
    const absl::Status loaded = Load({{"net", path}});
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(at::equal(W(), kW));
  }
  ASSERT_TRUE(files_.Remove("/w/model-2.safetensors").ok());
  EXPECT_THAT(Refusal({{"net", "/w"}}, ExitCode::kDataDamaged),
              HasSubstr("model-2.safetensors is missing, which /w/model.safetensors.index.json"));
  WriteText(files_, "/w/model.safetensors.index.json",
            R"({"weight_map": {"w": "../secret.safetensors"}})");
  EXPECT_THAT(Refusal({{"net", "/w"}}, ExitCode::kDataDamaged), HasSubstr("no file beside it"));
}

TEST_F(LoadedWeights, StrictOnesNameWhatIsMissingAndLeftOver) {
  Write(files_, "/w/a.safetensors", {{"w", kW}, {"fc.weight", kW}, {"fc.bias", kW}});
  EXPECT_EQ(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kConfiguration),
            "load.net: /w/a.safetensors lacks count, and has fc.bias, fc.weight, which the model "
            "has not; rename them, or set \"strict\": false");
  const absl::Status loose = Load({{"net", {{"path", "/w/a.safetensors"}, {"strict", false}}}});
  ASSERT_TRUE(loose.ok()) << loose;
  EXPECT_TRUE(at::equal(W(), kW));
  Named many = {{"w", kW}, {"count", kCount}};
  for (int i = 0; i < 9; ++i) many.emplace_back("x" + std::to_string(i), kW);
  Write(files_, "/w/a.safetensors", many);
  EXPECT_THAT(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kConfiguration),
              HasSubstr("has x0, x1, x2, x3 and 5 more, which"));
  EXPECT_THAT(Refusal({{"head", {{"path", "/w/a.safetensors"}, {"strict", false}}}},
                      ExitCode::kConfiguration),
              HasSubstr("none of the tensors"));
}

TEST_F(LoadedWeights, WhatCannotBeIsRefused) {
  Write(files_, "/w/a.safetensors", {{"w", at::ones({3})}, {"count", kCount}});
  EXPECT_EQ(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kConfiguration),
            "load.net: \"w\" has shape [3] in /w/a.safetensors and [2] in the model");
  Write(files_, "/w/a.safetensors", {{"w", kW}, {"count", at::ones({})}});
  EXPECT_THAT(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kConfiguration),
              HasSubstr("\"count\" is of type Float in /w/a.safetensors and Long in the model"));
  EXPECT_THAT(Refusal({{"net", "/w/none.safetensors"}}, ExitCode::kConfiguration),
              HasSubstr("load.net: cannot read '/w/none.safetensors'"));
  EXPECT_THAT(Refusal({{"nte", "/w/a.safetensors"}}, ExitCode::kConfiguration),
              HasSubstr("load.nte names no model of this program, did you mean \"net\""));
  WriteText(files_, "/w/a.safetensors", "no safetensors at all");
  EXPECT_THAT(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kDataDamaged),
              HasSubstr("/w/a.safetensors: its header"));
  Write(files_, "/w/a.safetensors", {{"w", kW}, {"v", kW}, {"count", kCount}});
  EXPECT_THAT(Refusal({{"net", {{"path", "/w/a.safetensors"}, {"rename", {{"^v$", "w"}}}}}},
                      ExitCode::kConfiguration),
              HasSubstr("become \"w\""));
}

// A safetensors file of w, count and "q", whose type is `type`, of `bytes` bytes.
std::string WithForeign(const std::string& type, int bytes) {
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"count":{"dtype":"I64","shape":[],)"
      R"("data_offsets":[8,16]},"q":{"dtype":")" +
      type + R"(","shape":[1],"data_offsets":[16,)" + std::to_string(16 + bytes) + "]}}";
  std::string text(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  text += header;
  text.append(static_cast<const char*>(kW.const_data_ptr()), 8);
  text.append(static_cast<const char*>(kCount.const_data_ptr()), 8);
  return text + std::string(static_cast<size_t>(bytes), 'q');
}

TEST_F(LoadedWeights, OfTypesOfOthersAreLeftAsideOrNamed) {
  ASSERT_TRUE(checkpoint::MakeDirectories(files_, "/w").ok());
  for (const auto& [type, bytes] : {std::pair{"U16", 2}, {"U32", 4}, {"F8_E4M3", 1}, {"C64", 8}}) {
    WriteText(files_, "/w/a.safetensors", WithForeign(type, bytes));
    const absl::Status loose = Load({{"net", {{"path", "/w/a.safetensors"}, {"strict", false}}}});
    ASSERT_TRUE(loose.ok()) << loose;
    EXPECT_TRUE(at::equal(W(), kW));
    EXPECT_EQ(Refusal({{"net", "/w/a.safetensors"}}, ExitCode::kConfiguration),
              "load.net: /w/a.safetensors has q, which the model has not; rename them, or set "
              "\"strict\": false");
    EXPECT_EQ(Refusal({{"net",
                        {{"path", "/w/a.safetensors"},
                         {"strict", false},
                         {"rename", {{"^(w)$", "x"}, {"^q$", "w"}}}}}},
                      ExitCode::kConfiguration),
              std::string("load.net: \"w\" is of type ") + type +
                  " in /w/a.safetensors, which this version cannot load: save it as another type "
                  "(F32, I64)");
  }
}

TEST_F(LoadedWeights, ARenameThatIsTooMuchIsRefused) {
  Write(files_, "/w/a.safetensors", {{"w", kW}, {std::string(5000, 'a'), kW}, {"count", kCount}});
  const Json load = {
      {"net", {{"path", "/w/a.safetensors"}, {"strict", false}, {"rename", {{"(a|b)*", ""}}}}}};
  EXPECT_THAT(Refusal(load, ExitCode::kConfiguration),
              HasSubstr("a tensor whose name has 5000 characters, and rename takes names of 1024"));
}

// Every replica loads the value of a kPerReplica buffer.
TEST(LoadedBuffers, OfEachReplicaAreEveryReplicas) {
  const std::string path = ::testing::TempDir() + "loaded_buffers.safetensors";
  {
    MemoryFileSystem files;
    Write(files, "/a", {{"w", kW}, {"queue", at::tensor({3.f, 4.f, 5.f})}});
    const auto bytes = checkpoint::ReadFile(files, "/a");
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    std::ofstream(path, std::ios::binary) << *bytes;
  }
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 3;
  options.job.max_steps = 2;
  options.job.load = {{"net", {{"path", path}, {"strict", false}}}};
  options.devices.assign(3, c10::Device(at::kCPU));
  options.load = true;
  float built = 100;
  const auto run = testing::Run(std::move(options), [&](TestProgram& program) {
    program.on_build = [value = ++built](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::zeros({2}));
      self.model->buffer("queue", at::zeros({3}));
      self.model->buffer("own", at::full({}, value));
      builder.model("net", self.model);
      builder.buffer("net.queue", BufferMode::kPerReplica);
      builder.buffer("net.own", BufferMode::kPerReplica);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, testing::Tensors2(at::ones({6, 2}), at::ones({6})));
    };
    program.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"],
                    (at::matmul(batch[0], (*self.model)["w"]) - batch[1]).square());
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(at::equal(run.replicas[r].at("queue"), at::tensor({3.f, 4.f, 5.f}))) << r;
    EXPECT_EQ(run.replicas[r].at("own").item<float>(), 101 + static_cast<float>(r))
        << "which no file has";
  }
  std::remove(path.c_str());
}

TEST_F(LoadedWeights, TheJobsPathIsSeenFromItsFolder) {
  Write(files_, "/jobs/w/a.safetensors", {{"w", kW}, {"count", kCount}});
  job_.folder = "/jobs";
  ASSERT_TRUE(Load({{"net", "w/a.safetensors"}}).ok());
  EXPECT_TRUE(at::equal(W(), kW));
}

TEST_F(LoadedWeights, TheJobsReplaceTheProgramsOfAModel) {
  Write(files_, "/w/a.safetensors", {{"w", kW}, {"count", kCount}});
  Write(files_, "/w/b.safetensors", {{"w", -kW}, {"count", kCount}});
  Write(files_, "/w/head.safetensors", {{"b", at::ones({1})}});
  const auto ask = [](Builder& builder) {
    builder.load("net", "/w/b.safetensors");
    builder.load("head", "/w/head.safetensors");
  };
  ASSERT_TRUE(Load(Json::object(), ask).ok());
  EXPECT_TRUE(at::equal(W(), -kW));
  ASSERT_TRUE(Load({{"net", "/w/a.safetensors"}}, ask).ok());
  EXPECT_TRUE(at::equal(W(), kW));
  EXPECT_EQ((*program_->second)["b"].item<float>(), 1.f);
}

TEST(LoadKey, IsChecked) {
  for (const auto& [load, what] : std::vector<std::pair<Json, std::string>>{
           {"x", "load must be an object"},
           {{{"net", 3}}, "load.net must be a path"},
           {{{"net", {{"pth", "x"}}}}, "did you mean \"path\""},
           {{{"net", {{"strict", true}}}}, "names no file"},
           {{{"net", {{"path", "x"}, {"rename", {{"(", "a"}}}}}}, "is no regular expression"}}) {
    const auto specs = ParseLoad(load);
    EXPECT_EQ(ExitCodeOf(specs.status()), ExitCode::kConfiguration) << load;
    EXPECT_THAT(std::string(Message(specs.status())), HasSubstr(what));
  }
}

}  // namespace
}  // namespace muster
