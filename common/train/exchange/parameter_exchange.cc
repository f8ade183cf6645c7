#include "common/train/exchange/parameter_exchange.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/train/exchange/pushed_gradients.h"

namespace muster {

absl::StatusOr<std::unique_ptr<ParameterExchange>> ParameterExchange::Make(
    const Replica& replica, const Job& job, ServedVariables served, push_pull::Layout layout) {
  std::vector<ClipOptions> clips;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec spec, ParseOptimizer(optimizer.spec));
    clips.push_back(spec.clip);
  }
  std::unique_ptr<ParameterExchange> exchange(
      new ParameterExchange(replica, std::move(served), std::move(layout)));
  exchange->clips_ = std::move(clips);
  exchange->float16_ = job.precision == Precision::kFloat16;
  return exchange;
}

void ParameterExchange::UseClient(push_pull::PushPullClient* client) {
  rows_.UseClient(client);
  client_ = client;
  open_ = false;
  dense_.UseClient(client);
}

std::vector<std::unique_ptr<GradientSink>> ParameterExchange::MakeSinks() {
  std::vector<std::unique_ptr<GradientSink>> sinks;
  for (size_t o = 0; o < clips_.size(); ++o)
    sinks.push_back(std::make_unique<PushedGradients>(
        this, &dense_, PushedGradients::Options{static_cast<int>(o), clips_[o], float16_}));
  return sinks;
}

absl::Status ParameterExchange::Pull() {
  MUSTER_RETURN_IF_ERROR(dense_.CheckSameBuffers());
  MUSTER_RETURN_IF_ERROR(Waiting([this] { return client_->Pull(); }));
  dense_.CopyToDevice(/*rest=*/true);
  dense_.KeepSameBuffers();
  return absl::OkStatus();
}

absl::Status ParameterExchange::Pull(std::span<const RowRead> reads) {
  return Waiting([&]() -> absl::Status {
    if (open_)
      return ProgramError(
          "lookup was called after minimize() in a step: with parameter servers its gradients are "
          "on their way by then; look everything up first");
    return rows_.Pull(reads);
  });
}

absl::Status ParameterExchange::Push(int64_t, std::span<const RowGradients> tables) {
  const bool pushed = rows_.Push(tables, learning_rates_, [this] { Open(); });
  return pushed ? Wait() : absl::OkStatus();
}

void ParameterExchange::BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows,
                                  int64_t lease) {
  const at::NoGradGuard no_grad;
  rows_.BeginStep(std::move(rows));
  weight_ = weight;
  outcome_ = {};
  not_finite_.clear();
  pushes_ = 0;
  rest_done_ = false;
  refused_ = dense_.CheckSameBuffers();
  lease_ = lease;
  learning_rates_[served_.rest()] = weight;
  dense_.BeginStep();
}

absl::Status ParameterExchange::FinishStep() {
  rows_.FinishStep();
  if (rest_done_) return absl::OkStatus();
  LaunchRest();
  return Wait();
}

void ParameterExchange::Open() {
  if (open_) return;
  open_ = true;
  if (pushes_ == 0) push_began_ = Clock::now();
  client_->Begin(++sequence_, lease_, learning_rates_);
}

void ParameterExchange::SetLearningRate(int optimizer, double rate) {
  for (size_t o = 0; o < served_.owners.size(); ++o)
    if (served_.owners[o].optimizer == optimizer)
      learning_rates_[o] = rate * served_.owners[o].scale;
}

void ParameterExchange::Launch(int chunk, DenseVariables::What what) {
  Open();
  dense_.Launch(chunk, what);
}

void ParameterExchange::LaunchRest() {
  rest_done_ = true;
  // Checks before the launches below overwrite the buffers with the servers' values.
  if (refused_.ok()) refused_ = dense_.CheckSameBuffers();
  for (const auto& [chunk, what] : dense_.WriteDifferences(weight_)) Launch(chunk, what);
}

absl::Status ParameterExchange::Wait() {
  if (!open_) return refused_;
  open_ = false;
  auto outcome = Waiting([this] { return client_->Finish(); });
  MUSTER_RETURN_IF_ERROR(outcome.status());
  const double before = outcome_.staleness_mean * static_cast<double>(pushes_);
  ++pushes_;
  outcome_.staleness_max = std::max(outcome_.staleness_max, outcome->staleness_max);
  outcome_.staleness_mean = (before + outcome->staleness_mean) / static_cast<double>(pushes_);
  outcome_.bytes += outcome->bytes;
  outcome_.resumed += outcome->resumed;
  outcome_.views.resize(outcome->views.size());
  for (size_t shard = 0; shard < outcome->views.size(); ++shard) {
    const uint64_t view = outcome->views[shard];
    uint64_t& oldest = outcome_.views[shard];
    if (view != 0) oldest = oldest == 0 ? view : std::min(oldest, view);
  }
  dense_.AddNotFinite(outcome->refused, &not_finite_);
  // The last push of the step has the changes of buffers.
  dense_.CopyToDevice(rest_done_);
  return refused_;
}

}  // namespace muster
