// muster-worker with a program that writes down which examples each step uses, and that can be held
// at chosen moments: for the tests of restarts. Both need $MUSTER_TEST_DIR:
//   used-<pid>-<replica>   a line a committed step: its number, then the examples
//   hold-<moment>          while it exists, a process that reaches that moment waits, having made
//   held-<moment>          and held-<moment>-<pid>; moments: step-<n>, between-<n> (two minimize()
//   of a step),
//                          validation-<step>, save-<step> (half written), publish-<step> (whole,
//                          right before the rename), build (of the model), datasets
//   digests-<pid>          with $MUSTER_TEST_DIGESTS, a line a generation: the step that it begins
//                          after, then the digest of each replica's parameters
// With $MUSTER_TEST_DRAIN each step of the chief's waits until the checkpoint before it is written:
// none is left out, and a test knows which are there.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "chief/chief.h"
#include "chief/model_dir/resume.h"
#include "worker/task.h"

namespace muster {
namespace {

std::string TestDirectory() {
  const char* path = std::getenv("MUSTER_TEST_DIR");
  return path == nullptr ? "." : path;
}

void Hold(const std::string& moment) {
  const std::string hold = TestDirectory() + "/hold-" + moment;
  if (!std::filesystem::exists(hold)) return;
  const std::string held = TestDirectory() + "/held-" + moment;
  std::ofstream(fmt::format("{}-{}", held, getpid())) << "";
  std::ofstream(held) << getpid();
  const MonotonicTime end = Clock::now() + std::chrono::seconds(60);
  while (std::filesystem::exists(hold) && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

CheckpointSink* checkpoints = nullptr;  // the chief's

void DrainCheckpoints() {
  if (checkpoints != nullptr && std::getenv("MUSTER_TEST_DRAIN") != nullptr)
    (void)checkpoints->Drain();
}

class Weights : public torch::nn::Module {
 public:
  Weights() { w = register_parameter("w", at::zeros({3})); }
  at::Tensor w;
};

class Normalized : public torch::nn::Module {
 public:
  Normalized()
      : norm_(register_module("norm", torch::nn::BatchNorm1d(3))),
        linear_(register_module("linear", torch::nn::Linear(3, 1))) {}
  at::Tensor Forward(const at::Tensor& x) { return linear_->forward(norm_->forward(x)).squeeze(1); }

 private:
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear linear_;
};

// Least squares on distinct examples, shuffled, by an optimizer with slots. program_args:
// "examples"; "sleep_ms" for each step;
// "twice": each step updates another model too, one with batch normalization; "table": each example
// has a row of a table too.
class Recording : public Program {
 public:
  void build(Builder& builder) override {
    int64_t examples = 34;
    bool table = false;
    builder.args()
        .Read("examples", &examples)
        .Read("sleep_ms", &sleep_ms_)
        .Read("twice", &twice_)
        .Read("table", &table);
    Hold("build");
    builder.model("net", weights_);
    adam_ = builder.optimizer("adam", {"net"}, {{"name", "adam"}}, 0.05);
    if (twice_) {
      builder.model("normalized", normalized_);
      sgd_ = builder.optimizer("sgd", {"normalized"}, {{"name", "sgd"}, {"momentum", 0.5}}, 0.05);
    }
    if (table) {
      EmbeddingOptions rows;
      rows.width = 4;
      rows.optimizer = "adagrad";
      rows.learning_rate = 0.1;
      rows_ = builder.embedding("rows", rows);
    }
    builder.dataset(Split::kTrain, [=] {
      Hold("datasets");
      return Examples(examples, /*shuffle=*/true);
    });
    builder.dataset(Split::kValidation, [=] { return Examples(7, /*shuffle=*/false); });
  }

  void run(Loop& loop) override {
    if (std::getenv("MUSTER_TEST_DIGESTS") != nullptr) WriteDigests(loop);
    loop.fit();
  }
  void train_step(Step& step, const data::Batch& batch) override {
    DrainCheckpoints();
    Hold(fmt::format("step-{}", step.number()));
    if (sleep_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_));
    done_ = step.number();
    step.on_commit([this, line = Line(step, batch[2]), replica = step.replica()] {
      std::ofstream(fmt::format("{}/used-{}-{}", TestDirectory(), getpid(), replica), std::ios::app)
          << line;
    });
    step.report("target", batch[1]);
    step.minimize(adam_, Loss(step, batch));
    if (!twice_) return;
    Hold(fmt::format("between-{}", step.number()));
    // A loss of the weights that the first one has just changed.
    step.minimize(
        sgd_,
        (normalized_->Forward(batch[0]) - at::matmul(batch[0], weights_->w).detach()).square());
  }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    Hold(fmt::format("validation-{}", done_));
    evaluation.loss(Loss(evaluation, batch));
    evaluation.report("target", batch[1]);
  }

 private:
  static absl::StatusOr<data::DatasetPtr> Examples(int64_t count, bool shuffle) {
    const at::Tensor id = at::arange(count, at::kFloat);
    const at::Tensor columns = at::arange(1, 4, at::kFloat);
    const at::Tensor x = (id.unsqueeze(1) * columns).sin();
    auto dataset = data::FromTensors({x, (id * 0.37).cos(), id});
    return shuffle ? data::Shuffle(*std::move(dataset)) : std::move(dataset);
  }
  template <typename Rows>  // Step or Evaluation
  at::Tensor Loss(Rows& rows, const data::Batch& batch) const {
    at::Tensor predicted = at::matmul(batch[0], weights_->w);
    if (rows_) predicted = predicted + rows.lookup(*rows_, batch[2].to(at::kLong)).sum(1);
    return (predicted - batch[1]).square();
  }
  int64_t Digest() const {  // FNV-1a
    const at::Tensor values = weights_->w.detach().contiguous();
    const auto* bytes = static_cast<const uint8_t*>(values.const_data_ptr());
    uint64_t hash = 14695981039346656037ULL;
    for (size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return static_cast<int64_t>(hash);
  }
  void WriteDigests(Loop& loop) const {
    const at::Tensor digests = loop.gather(at::full({1}, Digest(), at::kLong));
    std::string line = fmt::format("{}", loop.steps());
    for (int64_t i = 0; i < digests.numel(); ++i)
      line += fmt::format(" {:016x}", static_cast<uint64_t>(digests[i].item<int64_t>()));
    std::ofstream(fmt::format("{}/digests-{}", TestDirectory(), getpid()), std::ios::app)
        << line << "\n";
  }
  static std::string Line(const Step& step, const at::Tensor& ids) {
    std::string line = fmt::format("{}", step.number());
    for (int64_t i = 0; i < ids.numel(); ++i)
      line += fmt::format(" {}", static_cast<int64_t>(ids[i].item<float>()));
    return line + "\n";
  }

  int64_t sleep_ms_ = 0, done_ = 0;
  bool twice_ = false;
  std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
  std::shared_ptr<Normalized> normalized_ = std::make_shared<Normalized>();
  OptimizerHandle adam_, sgd_;
  std::optional<EmbeddingHandle> rows_;
};

// The file system, held in the middle of a save and right before it is published.
class HeldFileSystem : public checkpoint::FileSystem {
 public:
  using Status = absl::Status;
  absl::StatusOr<std::unique_ptr<checkpoint::WritableFile>> Create(
      const std::string& path) override {
    const std::filesystem::path file(path);
    if (file.filename() == "state.json") HoldStep("save", file.parent_path().filename());
    return files_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<checkpoint::ReadableFile>> Open(const std::string& path) override {
    return files_.Open(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return files_.List(path);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override { return files_.Exists(path); }
  Status MakeDirectory(const std::string& path) override { return files_.MakeDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    HoldStep("publish", std::filesystem::path(to).filename());
    return files_.Rename(from, to);
  }
  Status Remove(const std::string& path) override { return files_.Remove(path); }
  Status SyncDirectory(const std::string& path) override { return files_.SyncDirectory(path); }

 private:
  static void HoldStep(const char* what, const std::string& name) {
    const int64_t step = checkpoint::StepOfName(name);
    if (step >= 0) Hold(fmt::format("{}-{}", what, step));
  }
  checkpoint::FileSystem& files_ = checkpoint::PosixFileSystem();
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  static muster::HeldFileSystem files;
  return muster::worker::RunTask(argc, argv,
                                 {muster::TaskType::kWorker,
                                  [](const muster::ChiefRoleOptions& options) {
                                    auto chief = muster::chief::StartChiefOn(files, options);
                                    if (chief.ok()) muster::checkpoints = (*chief)->checkpoints();
                                    return chief;
                                  },
                                  [](const muster::Json&) {
                                    return absl::StatusOr<muster::ProgramFactory>(
                                        [] { return std::make_unique<muster::Recording>(); });
                                  },
                                  /*termination_log=*/""});
}
