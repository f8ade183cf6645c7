#include "deploy/tool/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "common/base/logging.h"
#include "common/telemetry/progress.h"
#include "common/train/job.h"
#include "common/train/program_path.h"
#include "common/train/snapshot.h"
#include "common/train/task_process.h"
#include "common/train/trainer.h"
#include "muster/stamp.h"

namespace muster {
namespace {

std::string Size(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string Shape(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

int64_t Bytes(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

// What training says of itself.
class Recorder : public Observer {
 public:
  void OnStep(const StepReport& report) override {
    std::string values;
    for (const auto& [name, value] : report.values)
      values += fmt::format(", {} {:.6g}", name, value);
    for (const auto& [name, value] : report.metrics) {
      if (name != "loss") values += fmt::format(", {} {:.6g}", name, value);
    }
    fmt::print("  step {}: loss {:.6g}{}; {:.3f} s forward, backward and update\n", report.step,
               report.loss, values, report.compute_seconds);
  }
  void OnEpoch(const EpochReport& report) override {
    if (report.split == SplitName(Split::kTrain)) return;
    std::string values;
    for (const auto& [name, value] : report.metrics)
      values += fmt::format("{}{} {:.6g}", values.empty() ? "" : ", ", name, value);
    fmt::print("  {}: {} over {} examples\n", report.split, values, report.examples);
  }
};

class CheckCommand : public Command {
 public:
  explicit CheckCommand(std::function<absl::StatusOr<ProgramFactory>(const Json&)> find_program)
      : find_program_(std::move(find_program)) {}

  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "check", "Run one batch of each split of a job on the CPU, before a cluster is started");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    AddSet(app, &overrides_);
    return app;
  }

  int Run() override {
    const absl::Status status = Check();
    if (!status.ok()) return ReportError("check", status);
    fmt::print("nothing is refused\n");
    return 0;
  }

 private:
  absl::Status Check() {
    MUSTER_ASSIGN_OR_RETURN(Job job, LoadJob(job_, overrides_));
    MUSTER_RETURN_IF_ERROR(CheckSupported(job));
    MUSTER_RETURN_IF_ERROR(AddProgramDigest(job.program, &job.digests));
    PrintJob(job);
    MUSTER_ASSIGN_OR_RETURN(ProgramFactory factory, find_program_(job.program));
    const bool saves = !job.model_dir.empty();
    job.model_dir.clear();
    job.devices = "cpu";
    job.strategy = StrategyKind::kOneDevice;
    job.max_steps = 1;
    TrainerOptions options{job, std::move(factory), {c10::Device(c10::kCPU)}, {&recorder_}};
    options.evaluated_examples =
        job.global_batch_size.value_or(job.per_replica_batch_size.value_or(1));
    MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                            Trainer::Make(std::move(options)));
    if (saves) MUSTER_RETURN_IF_ERROR(CheckSavable(trainer->replica()));
    MUSTER_RETURN_IF_ERROR(trainer->Load(checkpoint::PosixFileSystem()));
    PrintProgram(trainer->replica());
    MUSTER_RETURN_IF_ERROR(PrintData(job, *trainer));
    const auto membership = MakeLocalMembership(1, job.timeouts.collective);
    MUSTER_RETURN_IF_ERROR(trainer->Run(membership.get()));
    PrintMemory(trainer->replica());
    return absl::OkStatus();
  }

  void PrintJob(const Job& job) const {
    const std::string file = ProgramFile(job.program);
    if (file.empty()) {
      fmt::print("program {}\n", Dump(job.program));
    } else {
      fmt::print("program {}, {}\n", file, job.digests.value("program", std::string()));
    }
    fmt::print("  with {}\n", MUSTER_STAMP);
  }

  static void PrintProgram(const Replica& replica) {
    for (const NamedModel& model : replica.models()) {
      fmt::print("model {}\n", model.name);
      int64_t count = 0, frozen = 0;
      for (const auto& [name, value] : model.parameters) {
        fmt::print("  {}: {}{}\n", name, Shape(value), value.requires_grad() ? "" : ", frozen");
        (value.requires_grad() ? count : frozen) += value.numel();
      }
      fmt::print("  {} parameters{}\n", FormatGrouped(count),
                 frozen == 0 ? "" : fmt::format(" are trained, {} frozen", FormatGrouped(frozen)));
    }
    for (const NamedOptimizer& optimizer : replica.optimizers())
      fmt::print("optimizer {}\n", optimizer.name);
    for (const NamedEmbedding& table : replica.embeddings())
      fmt::print("embedding {}\n", table.name);
  }

  static absl::Status PrintData(const Job& job, const Trainer& trainer) {
    const int64_t batch = job.global_batch_size.value_or(job.per_replica_batch_size.value_or(1));
    for (const auto& [split, dataset] : trainer.datasets()) {
      const int64_t size = dataset->size();
      if (size < 0) {
        fmt::print("{} data: a stream, whose size is not known\n", SplitName(split));
        continue;
      }
      std::vector<int64_t> first(std::min(batch, size));
      std::iota(first.begin(), first.end(), 0);
      MUSTER_ASSIGN_OR_RETURN(const data::Batch tensors,
                              dataset->GetBatch(first, {job.seed, /*epoch=*/0}));
      std::vector<std::string> shapes;
      for (const at::Tensor& tensor : tensors) shapes.push_back(Shape(tensor));
      fmt::print("{} data{}, a batch: {}\n", SplitName(split),
                 split == Split::kTrain ? fmt::format(": {} examples", FormatGrouped(size)) : "",
                 fmt::join(shapes, ", "));
    }
    return absl::OkStatus();
  }

  static void PrintMemory(const Replica& replica) {
    int64_t weights = 0;
    for (const NamedModel& model : replica.models())
      weights += Bytes(model.parameters) + Bytes(model.buffers);
    int64_t state = 0;
    for (const at::Tensor& tensor : replica.state()) state += static_cast<int64_t>(tensor.nbytes());
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("memory: models {}, optimizers {}, this process at most {}\n", Size(weights),
               Size(std::max<int64_t>(0, state - weights)), Size(usage.ru_maxrss * 1024));
  }

  const std::function<absl::StatusOr<ProgramFactory>(const Json&)> find_program_;
  std::string job_;
  std::vector<std::string> overrides_;
  Recorder recorder_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand(
    std::function<absl::StatusOr<ProgramFactory>(const Json&)> find_program) {
  return std::make_unique<CheckCommand>(std::move(find_program));
}

}  // namespace muster
