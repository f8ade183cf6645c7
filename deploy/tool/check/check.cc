#include "deploy/tool/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>

#include "common/collective/group/formation.h"
#include "common/job/job.h"
#include "common/job/program_path.h"
#include "common/process/task_process.h"
#include "common/push_pull/options.h"
#include "common/train/evaluation.h"
#include "common/train/exchange/dense_variables.h"
#include "common/train/exchange/parameter_exchange.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/snapshot.h"
#include "common/train/state/variables.h"
#include "common/train/step/single_example.h"
#include "common/train/trainer.h"
#include "deploy/tool/check/check_report.h"
#include "deploy/tool/check/served_program.h"
#include "deploy/tool/check/tried_batch.h"

namespace muster {
namespace {

// The highest number of replicas to try if none is given.
constexpr int kMaxReplicas = 16;

// Formats ascending numbers: "3, 5 to 16".
std::string Ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    parts.push_back(end - begin == 1 ? fmt::format("{}", numbers[begin])
                                     : fmt::format("{} to {}", numbers[begin], numbers[end - 1]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// A Membership of one replica that requests a stop after the first step. Passes before that step
// run completely.
class OneStep final : public Membership {
 public:
  explicit OneStep(Duration timeout) : alone_(MakeLocalMembership(1, timeout)) {}
  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    return alone_->NextGeneration(last_step);
  }
  void SetPhase(Phase phase, int64_t) override { phase_ = phase; }
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  void RequestStop() override {}
  bool StopRequested() const override { return phase_ != Phase::kEvaluate; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }

 private:
  const std::unique_ptr<Membership> alone_;
  std::atomic<Phase> phase_ = Phase::kStarting;
};

class Check {
 public:
  Check(Job job, int replicas, StartState beginning)
      : job_(std::move(job)), replicas_(replicas), beginning_(std::move(beginning)) {}

  absl::Status Run(ProgramFactory program) {
    MUSTER_ASSIGN_OR_RETURN(admitted_, AdmittedBatches(job_.program));
    MUSTER_ASSIGN_OR_RETURN(tried_, BatchToTry(job_, replicas_, admitted_));
    if (!beginning_.reason.empty()) fmt::print("{}\n", beginning_.reason);
    MUSTER_RETURN_IF_ERROR(Build(std::move(program)));
    PrintProgram(trainer_->replica());
    if (for_servers()) MUSTER_RETURN_IF_ERROR(CheckServers());
    MUSTER_RETURN_IF_ERROR(CheckEpoch(job_, trainer_->replica(), train_size(), tried_, admitted_));
    MUSTER_RETURN_IF_ERROR(BeginState());
    MUSTER_RETURN_IF_ERROR(PrintData(job_, *trainer_, tried_.examples));
    MUSTER_RETURN_IF_ERROR(Step());
    MUSTER_RETURN_IF_ERROR(MakePasses());
    PrintMemory(trainer_->replica());
    return absl::OkStatus();
  }

 private:
  bool for_servers() const { return job_.strategy == StrategyKind::kParameterServer; }
  int64_t train_size() const { return trainer_->datasets().at(Split::kTrain)->size(); }

  absl::Status Build(ProgramFactory program);
  absl::Status CheckServers();
  absl::Status BeginState();
  absl::Status Step();
  absl::Status CheckBatchNorm() const;
  absl::Status MakePasses();

  const Job job_;
  const int replicas_;  // 0: not given.
  std::optional<exported::Range> admitted_;
  TriedBatch tried_;
  const StartState beginning_;
  CheckObserver observer_;
  std::unique_ptr<Trainer> trainer_;
};

absl::Status Check::Build(ProgramFactory program) {
  Job job = job_;
  job.devices = "cpu";
  if (for_servers()) {
    job.strategy = StrategyKind::kOneDevice;
    program = ForServers(std::move(program));
  }
  job.per_replica_batch_size.reset();
  job.global_batch_size = tried_.examples;
  // CheckEpoch checks the epoch's last batch, which is different with the job's replicas.
  if (tried_.examples != tried_.global) job.drop_remainder = true;
  TrainerOptions options{job, std::move(program), {c10::Device(c10::kCPU)}, {&observer_}};
  options.evaluated_examples = tried_.examples;
  options.for_servers = for_servers();
  MUSTER_ASSIGN_OR_RETURN(trainer_, Trainer::Make(std::move(options)));
  return job_.model_dir.empty() ? absl::OkStatus() : CheckSavable(trainer_->replica());
}

// Runs the checks that a worker and the chief of a parameter-server job make before training.
absl::Status Check::CheckServers() {
  if (job_.devices != "auto" && job_.devices != "cuda") {
    const auto devices = ParseDevices(job_.devices);
    // The devices may be those of another host, so they need not exist here.
    if (devices.ok()) MUSTER_RETURN_IF_ERROR(CheckDevicesForServers(job_.devices, devices->size()));
  }
  MUSTER_RETURN_IF_ERROR(CheckForServers(trainer_->replica()));
  for (const auto& [split, dataset] : trainer_->datasets())
    MUSTER_RETURN_IF_ERROR(data::CheckSized(*dataset, SplitName(split)));
  MUSTER_ASSIGN_OR_RETURN(const push_pull::ParameterServerOptions options,
                          push_pull::ParseParameterServer(job_.parameter_server));
  MUSTER_ASSIGN_OR_RETURN(ServedVariables served, VariablesToServe(&trainer_->replica()));
  int64_t numbers = 0;
  for (const at::Tensor& tensor : served.tensors) numbers += tensor.numel();
  fmt::print("parameter servers hold {} variables, {} numbers\n", served.specs.size(), numbers);
  push_pull::LayoutOptions layout;
  layout.partitioner = options.partitioner;
  layout.chunk_bytes = options.chunk_bytes;
  push_pull::Layout laid = push_pull::MakeLayout(served.specs, layout);
  return ParameterExchange::Make(trainer_->replica(), job_, std::move(served), std::move(laid))
      .status();
}

absl::Status Check::BeginState() {
  const bool restores = beginning_.snapshot.has_value();
  const bool begins = !restores && !beginning_.finished;
  MUSTER_RETURN_IF_ERROR(PrintLoads(job_, trainer_->replica(), begins));
  if (begins) return trainer_->Load(checkpoint::PosixFileSystem());
  if (!restores) return absl::OkStatus();
  // Restores only the tensors, because the step uses the first batch, whatever the run's position
  // in its data.
  MUSTER_RETURN_IF_ERROR(RestoreStacked(*beginning_.snapshot, trainer_->replica()).status());
  LoopState state = InitialLoopState(job_, trainer_->replica());
  return RestoreReplica(*beginning_.snapshot, job_, &trainer_->replica(), &state);
}

absl::Status Check::Step() {
  if (tried_.examples != tried_.global) {
    fmt::print("  tried with {} of the {} examples of a batch, as {} replicas have them\n",
               tried_.examples, tried_.global, tried_.replicas);
    constexpr size_t kShown = 8;
    const std::vector<int>& all = tried_.fitting;
    const std::vector<int> shown(all.begin(), all.begin() + std::min(all.size(), kShown));
    if (!all.empty())
      fmt::print("  numbers of replicas that the file's batch fits: {}{}; others are refused\n",
                 fmt::join(shown, ", "), all.size() > kShown ? ", ..." : "");
  }
  const std::vector<at::Tensor> before = CopyBuffers(trainer_->replica());
  OneStep membership(job_.timeouts.collective);
  bool needs_several_examples = false;
  {
    const BatchNormWatch watch;
    const absl::Status ran = trainer_->Run(&membership);
    if (!ran.ok() && !absl::IsCancelled(ran)) return ran;  // Cancelled: stopped as requested.
    needs_several_examples = watch.needs_several_examples();
  }
  if (observer_.steps() == 0) fmt::print("  run() makes no step\n");
  const std::vector<NamedBuffer> changed = ChangedBuffers(trainer_->replica(), before);
  PrintAveraged(changed);
  for (const NamedBuffer& buffer : changed)
    if (for_servers() && buffer.mode == BufferMode::kSame) return ChangedSameBuffer(buffer.name);
  return needs_several_examples ? CheckBatchNorm() : absl::OkStatus();
}

// Checks batches with a single example for a replica. The loop has already checked the case of one
// replica.
absl::Status Check::CheckBatchNorm() const {
  const Replica& replica = trainer_->replica();
  if (replicas_ > 0) {
    const std::string batch = SingleExample(job_, replica, train_size(), replicas_);
    return batch.empty() ? absl::OkStatus() : SingleExampleError(batch);
  }
  const std::vector<int> refused =
      ReplicasWithSingleExample(job_, replica, train_size(), kMaxReplicas);
  if (!refused.empty()) {
    fmt::print(
        "  batch normalisation over [batch, features]: {} replicas would be refused (of 1 to {}), "
        "as some batch leaves one of them a single example\n",
        Ranges(refused), kMaxReplicas);
  }
  return absl::OkStatus();
}

// Runs the passes that the program's own loop did not run.
absl::Status Check::MakePasses() {
  const auto alone = collective::MakeThreadCommunicators(1, job_.timeouts.collective);
  for (const auto& [split, dataset] : trainer_->datasets()) {
    if (split == Split::kTrain || observer_.evaluated(split)) continue;
    PassOptions options;
    options.split = split;
    options.dataset = dataset;
    options.batch_size = PassBatchSize(job_, tried_.examples, /*num_replicas=*/1);
    MUSTER_ASSIGN_OR_RETURN(const PassResult pass,
                            RunPass(job_, &trainer_->replica(), alone[0].get(), options));
    EpochReport report;
    report.split = SplitName(split);
    report.examples = pass.examples;
    report.metrics = pass.metrics;
    observer_.OnEpoch(report);
  }
  return absl::OkStatus();
}

class CheckCommand : public Command {
 public:
  explicit CheckCommand(CheckSources sources) : sources_(std::move(sources)) {}

  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "check", "Run one batch of each split of a job on the CPU, before a cluster is started");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    app->add_option("--replicas", replicas_,
                    "The number of replicas of the job: those of its chief and workers together")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 20).description(""));
    AddSet(app, &overrides_);
    return app;
  }

  int Run() override {
    const absl::Status status = RunCheck();
    std::fflush(stdout);  // Prints the findings before the error.
    if (!status.ok()) return ReportStatus("check", status);
    fmt::print("no problem was found\n");
    return 0;
  }

 private:
  absl::Status RunCheck() {
    MUSTER_ASSIGN_OR_RETURN(Job job, LoadJob(job_, overrides_));
    MUSTER_RETURN_IF_ERROR(CheckSupported(job));
    MUSTER_RETURN_IF_ERROR(AddProgramDigest(job.program, &job.digests));
    PrintJob(job);
    MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, sources_.find_program(job.program));
    MUSTER_ASSIGN_OR_RETURN(StartState beginning, sources_.find_beginning(job));
    return Check(std::move(job), replicas_, std::move(beginning)).Run(std::move(program));
  }

  const CheckSources sources_;
  std::string job_;
  int replicas_ = 0;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand(CheckSources sources) {
  return std::make_unique<CheckCommand>(std::move(sources));
}

}  // namespace muster
