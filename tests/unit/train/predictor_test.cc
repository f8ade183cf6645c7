// Tests predictions of a program: rows in the input's order for every number of replicas, and the
// exit code of a failure.
#include "common/train/predictor.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::TestProgram;

at::Tensor Outputs(TestProgram& p, Prediction&, const data::Batch& batch) {
  EXPECT_FALSE(at::GradMode::is_enabled());
  EXPECT_FALSE(p.model->is_training());
  EXPECT_GT(batch[0].size(0), 0);
  return at::matmul(batch[0], (*p.model)["w"]) + (*p.model)["b"];
}

data::OpenSplit Input(const at::Tensor& x) {
  data::OpenSplit input;
  input.dataset = data::FromTensors({x}).value();
  input.columns = {{"x", x.scalar_type(), x.sizes().slice(1).vec()}};
  return input;
}

class Predicts : public ::testing::Test {
 protected:
  Predicts() {
    at::manual_seed(5);
    x_ = at::randn({13, 2});
    y_ = at::matmul(x_, at::tensor({1.f, -2.f}));
    job_.program = "test";
    job_.global_batch_size = 5;
    job_.epochs = 1;
    testing::RunOptions options;
    options.job = job_;
    options.checkpoints = &kept_;
    EXPECT_TRUE(
        testing::Run(options, [&](TestProgram& p) { LeastSquares(p, x_, y_); }).status.ok());
  }

  absl::StatusOr<at::Tensor> Predict(
      std::function<at::Tensor(TestProgram&, Prediction&, const data::Batch&)> predict,
      const at::Tensor& x, int replicas = 1, int64_t batch = 5) {
    PredictorOptions options;
    options.job = job_;
    options.devices.assign(replicas, c10::Device(at::kCPU));
    options.factory = [this, predict] {
      auto program = std::make_unique<TestProgram>();
      LeastSquares(*program, x_, y_);
      program->on_predict = predict;
      return program;
    };
    MUSTER_ASSIGN_OR_RETURN(const auto predictor, Predictor::Make(std::move(options)));
    MUSTER_RETURN_IF_ERROR(predictor->Restore(kept_.kept.back()));
    return predictor->Predict(Input(x), batch, nullptr);
  }

  absl::Status Fails(
      std::function<at::Tensor(TestProgram&, Prediction&, const data::Batch&)> predict,
      const at::Tensor& x) {
    return Predict(std::move(predict), x).status();
  }

  Job job_;
  at::Tensor x_, y_;
  KeptCheckpoints kept_;
};

TEST_F(Predicts, ARowForEachExampleInOrder) {
  const auto tensor = [&](const char* name) {
    return ViewOf(*kept_.kept.back().model.Find(name)).clone();
  };
  const at::Tensor want = at::matmul(x_, tensor("w")) + tensor("b");
  for (const int replicas : {1, 2, 4})
    for (const int64_t batch : {1, 5, 100}) {
      const auto got = Predict(Outputs, x_, replicas, batch);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(at::allclose(*got, want, 1e-5, 1e-6)) << replicas << " " << batch;
    }
}

TEST_F(Predicts, AnInputThatIsNoneOfTheProgramsIsTheCommandLines) {
  const auto refuses = [](TestProgram&, Prediction&, const data::Batch&) -> at::Tensor {
    throw std::invalid_argument("not mine");
  };
  absl::Status status = Fails(refuses, x_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_EQ(std::string(Message(status)), "not mine");
  status = Fails(Outputs, at::randn({4, 3}));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the input's x has shape [3]"));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("train data [2]"));
  status = Fails(Outputs, at::randn({0, 2}));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << status;
  status = Fails(nullptr, x_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("override Program::predict"));
}

TEST_F(Predicts, AnyOtherFailureIsTheProgramsOwn) {
  const auto fails = [](TestProgram&, Prediction&, const data::Batch&) -> at::Tensor {
    throw std::runtime_error("a bug");
  };
  absl::Status status = Fails(fails, x_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed);
  EXPECT_EQ(std::string(Message(status)), "predict failed: a bug");
  const auto sums = [](TestProgram&, Prediction&, const data::Batch& batch) {
    return batch[0].sum(0);
  };
  status = Fails(sums, x_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("one row for each of the 5 examples"));
  const auto widens = [](TestProgram&, Prediction&, const data::Batch& batch) {
    return at::zeros({batch[0].size(0), batch[0].size(0)});
  };
  status = Fails(widens, x_);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("[5, 5] for one batch and [3, 3]"));
}

// Takes a text of two numbers.
class Reading : public TestProgram {
 public:
  data::Batch encode(const std::string& prompt) override {
    if (prompt.empty()) throw std::invalid_argument("an empty prompt");
    if (prompt == "many") return {at::zeros({3, 2})};
    return {
        at::tensor({std::stof(prompt), std::stof(prompt.substr(prompt.find(' ')))}).view({1, 2})};
  }
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    EXPECT_EQ(prediction.columns(), std::vector<std::string>{"x"});
    return batch[0].sum(1);
  }
  std::string decode(const at::Tensor& outputs) override {
    return std::to_string(static_cast<int>(outputs.item<float>()));
  }
};

TEST_F(Predicts, APromptIsABatchOfOneExample) {
  const auto make = [&](bool reads) {
    PredictorOptions options;
    options.job = job_;
    options.devices = {c10::Device(at::kCPU)};
    options.factory = [this, reads]() -> std::unique_ptr<Program> {
      std::unique_ptr<TestProgram> program;
      if (reads)
        program = std::make_unique<Reading>();
      else
        program = std::make_unique<TestProgram>();
      LeastSquares(*program, x_, y_);
      return program;
    };
    return *Predictor::Make(std::move(options));
  };
  const auto predictor = make(true);
  const auto input = predictor->Encode("3 4");
  ASSERT_TRUE(input.ok()) << input.status();
  const auto outputs = predictor->Predict(*input, 5, nullptr);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->item<float>(), 7);
  EXPECT_EQ(*predictor->Decode(*outputs), "7");
  EXPECT_EQ(predictor->Encode("").status(), ConfigurationError("an empty prompt"));
  EXPECT_THAT(std::string(Message(predictor->Encode("many").status())),
              HasSubstr("a batch of one example"));
  const auto none = make(false)->Encode("3 4").status();
  EXPECT_EQ(ExitCodeOf(none), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(none)), HasSubstr("override Program::encode"));
}

}  // namespace
}  // namespace muster
