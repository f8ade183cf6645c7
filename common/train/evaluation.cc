#include "common/train/evaluation.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "common/base/process/cores.h"
#include "common/data/pipeline.h"
#include "common/train/embedding/embedding_step.h"
#include "common/train/input/loop_data.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/replica_values.h"

namespace muster {

using collective::Communicator;

class EvaluationImpl {
 public:
  EvaluationImpl(Replica* of, Split split) : replica(*of), split(split), rows(of) {
    int64_t width = 3;  // Loss, examples, all metrics, and the divisor of the loss.
    for (const NamedMetric& metric : replica.metrics()) width += metric.metric->width();
    sums = at::zeros({width}, at::TensorOptions().dtype(at::kDouble).device(replica.device()));
  }
  void AddLoss(const at::Tensor& loss, const at::Tensor& weights);
  void CheckWeighted(const std::string& what, const at::Tensor& value,
                     const at::Tensor& weights) const {
    if (value.defined() && value.dim() > 0 && value.size(0) == examples &&
        value.sizes() == weights.sizes())
      return;
    throw StatusError(ProgramError(fmt::format(
        "{} of eval_step and its weights must have one shape, with the {} examples as first "
        "dimension, and have [{}] and [{}]",
        what, examples, value.defined() ? fmt::format("{}", fmt::join(value.sizes(), ", ")) : "",
        fmt::join(weights.sizes(), ", "))));
  }
  // Returns the sum of value x weight. A value with weight 0 does not count, even if it is NaN.
  static at::Tensor WeightedSum(const at::Tensor& value, const at::Tensor& weights) {
    const at::Tensor w = weights.to(at::kDouble);
    return at::where(w.ne(0), value.detach().to(at::kDouble).mul(w), 0).sum();
  }
  // Returns the divisor of the loss sum: the number of examples, or the sum of the weights, over
  // all calls of loss(). Returns 0 if loss() was not called.
  double Divisor(const double* of_sums) const { return of_sums[sums.numel() - 1]; }
  void Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights) {
    const auto& metrics = replica.metrics();
    if (name.empty() || name == "loss" ||
        std::any_of(metrics.begin(), metrics.end(), [&](const auto& m) { return m.name == name; }))
      throw StatusError(ProgramError(fmt::format("report(\"{}\"): that name is {}", name,
                                                 name.empty()     ? "empty"
                                                 : name == "loss" ? "the loop's own"
                                                                  : "a metric's")));
    if (weights.defined()) {
      CheckWeighted(fmt::format("report(\"{}\")", name), value, weights);
    } else if (!value.defined() || value.dim() != 1 || value.size(0) != examples) {
      throw StatusError(ProgramError(fmt::format(
          "report(\"{}\") in eval_step needs one value for each example, shape [{}], and got shape "
          "[{}]",
          name, examples,
          value.defined() ? fmt::format("{}", fmt::join(value.sizes(), ", ")) : "undefined")));
    }
    at::Tensor& totals = values.try_emplace(name, at::zeros({2}, sums.options())).first->second;
    totals[0].add_(weights.defined() ? WeightedSum(value, weights)
                                     : value.detach().sum(at::kDouble));
    if (weights.defined()) {
      totals[1].add_(weights.sum(at::kDouble));
    } else {
      totals[1].add_(static_cast<double>(examples));
    }
  }
  void Update(int index, const at::Tensor& output, const at::Tensor& target,
              const at::Tensor& weights) {
    int64_t at = 2;
    for (int m = 0; m < index; ++m) at += replica.metrics()[m].metric->width();
    const Metric& metric = *replica.metrics().at(index).metric;
    const at::Tensor increment = weights.defined()
                                     ? metric.WeightedIncrement(output, target, weights)
                                     : metric.Increment(output, target);
    sums.narrow(0, at, metric.width()).add_(increment.to(at::kDouble));
  }

  const Replica& replica;
  const Split split;
  at::Tensor sums;
  std::optional<bool> weighted;  // True if loss() is called with weights.
  // Values that the program reported. Each tensor is [sum of value x weight, sum of weights], in
  // double on the device.
  std::map<std::string, at::Tensor> values;
  // Examples of the current batch.
  int64_t examples = 0;
  ReadOnlyRows rows;
  bool summary_wanted = false;
  SummaryData summary;
};

void EvaluationImpl::AddLoss(const at::Tensor& loss, const at::Tensor& weights) {
  if (weighted.value_or(weights.defined()) != weights.defined()) {
    throw StatusError(ProgramError(
        "the loss of eval_step has weights in one call of a pass and none in another"));
  }
  weighted = weights.defined();
  if (weights.defined()) {
    CheckWeighted("the loss", loss, weights);
    sums[0].add_(WeightedSum(loss, weights));
    sums[sums.numel() - 1].add_(weights.sum(at::kDouble));
    return;
  }
  if (loss.dim() != 1 || loss.size(0) != examples) {
    throw StatusError(ProgramError(fmt::format(
        "the loss of eval_step needs one value for each example, shape [{}]", examples)));
  }
  sums[0].add_(loss.detach().sum(at::kDouble));
  sums[sums.numel() - 1].add_(static_cast<double>(examples));
}

Split Evaluation::split() const { return impl_->split; }
at::Device Evaluation::device() const { return impl_->replica.device(); }
at::Tensor Evaluation::lookup(EmbeddingHandle table, const at::Tensor& keys) {
  return impl_->rows.Lookup(table, keys);
}
at::Tensor Evaluation::lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling) {
  return impl_->rows.Lookup(std::vector<TableBags>{{table, bags, pooling}})[0];
}
std::vector<at::Tensor> Evaluation::lookup(const std::vector<TableKeys>& keys) {
  return impl_->rows.Lookup(keys);
}
std::vector<at::Tensor> Evaluation::lookup(const std::vector<TableBags>& bags) {
  return impl_->rows.Lookup(bags);
}
void Evaluation::loss(const at::Tensor& loss, const at::Tensor& weights) {
  impl_->AddLoss(loss, weights);
}
void Evaluation::update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target,
                        const at::Tensor& weights) {
  impl_->Update(metric.index, output, target, weights);
}
void Evaluation::report(const std::string& name, const at::Tensor& value,
                        const at::Tensor& weights) {
  impl_->Report(name, value, weights);
}
void Evaluation::report(const Nested& values, const at::Tensor& weights) {
  values.ForEach([&](const std::string& name, const at::Tensor& value) {
    impl_->Report(name, value, weights);
  });
}
bool Evaluation::wants_summary() const { return impl_->summary_wanted; }
void Evaluation::image(const std::string& name, const at::Tensor& images) {
  impl_->summary.Image(impl_->summary_wanted, name, images);
}
void Evaluation::histogram(const std::string& name, const at::Tensor& values) {
  impl_->summary.Histogram(impl_->summary_wanted, name, values);
}

namespace {

// Finds out whether any replica wants to stop the pass. Every few batches, all replicas make a
// small reduction, about every kInterval for the slowest replica. They compute the next batch for
// it from reduced numbers, so all replicas take part.
class StopVote {
 public:
  StopVote(const Replica& replica, Communicator* communicator)
      : device_(replica.device()), communicator_(communicator) {}

  // Called before batch `batch`. Returns true if a replica wants to stop.
  absl::StatusOr<bool> Ask(int64_t batch, const std::function<bool()>& stop) {
    if (communicator_->size() == 1) return stop && stop();  // There are no other replicas.
    if (batch < next_) return false;
    const MonotonicTime now = Clock::now();
    const double each = batch > last_ ? Seconds(now - since_) / static_cast<double>(batch - last_)
                                      : kInterval;  // No batch was timed yet.
    at::Tensor values = at::tensor({stop && stop() ? 1.0 : 0.0, each}, at::kDouble).to(device_);
    MUSTER_RETURN_IF_ERROR(communicator_->AllReduce(BufferOf(values), ReduceOp::kMax)->Wait());
    values = values.to(at::kCPU);
    const double* agreed = values.const_data_ptr<double>();
    const double batches = kInterval / std::max(agreed[1], kInterval / kMaxBatches);
    next_ = batch + std::max<int64_t>(1, static_cast<int64_t>(batches));
    last_ = batch;
    since_ = Clock::now();
    return agreed[0] > 0;
  }

 private:
  static constexpr double kInterval = 0.25;  // In seconds.
  static constexpr double kMaxBatches = 1000;
  const c10::Device device_;
  Communicator* const communicator_;
  int64_t next_ = 0, last_ = 0;
  MonotonicTime since_;
};

absl::Status RunBatch(const Job& job, Replica* replica, data::Batch batch, int64_t examples,
                      EvaluationImpl* evaluation) {
  evaluation->examples = examples;
  evaluation->rows.Clear();
  evaluation->sums[1].add_(static_cast<double>(examples));
  for (at::Tensor& t : batch) t = t.to(replica->device(), /*non_blocking=*/true);
  Evaluation handle(evaluation);
  AutocastScope autocast(job.precision, replica->device());
  return CatchProgramErrors("eval_step", [&] { replica->program().eval_step(handle, batch); });
}

checkpoint::ReportedSum SumOf(const at::Tensor& totals) {
  return {totals[0].item<double>(), totals[1].item<double>()};
}

// Sums the reported values over all replicas.
std::map<std::string, checkpoint::ReportedSum> ReduceReported(const EvaluationImpl& evaluation,
                                                              Communicator* communicator) {
  std::string names;
  Nested::Items sums;
  for (const auto& [name, totals] : evaluation.values) {
    names += (names.empty() ? "" : ", ") + name;
    sums[name] = totals;
  }
  const at::Device device = evaluation.replica.device();
  ThrowIfError(AgreeOn(communicator, device,
                       fmt::format("reports {} in the {} pass", names.empty() ? "nothing" : names,
                                   SplitName(evaluation.split)),
                       "every replica must report() the same names, with an empty batch too"));
  std::map<std::string, checkpoint::ReportedSum> values;
  if (sums.empty()) return values;
  const Nested all = ReduceOverReplicas(communicator, device, ReduceOp::kSum,
                                        Nested(std::move(sums)), std::nullopt);
  for (const auto& [name, totals] : all.items()) values[name] = SumOf(totals.tensor());
  return values;
}

// Runs all batches. Returns true if the pass was stopped.
absl::StatusOr<bool> RunBatches(const Job& job, Replica* replica, Communicator* communicator,
                                const PassOptions& options, EvaluationImpl* evaluation,
                                DamagedExamples::Report* left_out) {
  const int64_t size = options.dataset->size();
  if (size < 0)
    return ConfigurationError(fmt::format("the {} dataset is a stream: a pass needs a known size",
                                          SplitName(options.split)));
  if (size == 0) return false;
  data::Sampler sampler(size, options.batch_size, /*drop_remainder=*/false);
  data::PipelineOptions pipeline_options = PipelineOptionsOf(job);
  pipeline_options.repeat = false;
  pipeline_options.cores = std::max(1, AvailableCores() / std::max(1, options.replicas_on_host));
  auto pipeline = data::Pipeline::Make(options.dataset, sampler, {}, communicator->rank(), 1,
                                       communicator->size(), pipeline_options);
  StopVote vote(*replica, communicator);
  DamagedExamples damaged(SplitName(options.split), communicator, replica->device(),
                          options.damage_log);
  std::vector<std::string> left_out_here;
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
    MUSTER_ASSIGN_OR_RETURN(const bool stop, vote.Ask(b, options.stop));
    if (stop) return true;
    MUSTER_ASSIGN_OR_RETURN(data::LoadedBatch loaded, pipeline->Next(0));
    evaluation->summary_wanted = options.summary && b == 0;
    MUSTER_RETURN_IF_ERROR(
        RunBatch(job, replica, std::move(loaded.batch), loaded.local_examples, evaluation));
    left_out_here.insert(left_out_here.end(), loaded.damaged.begin(), loaded.damaged.end());
    if (options.progress) options.progress(b + 1, sampler.batches_per_epoch());
  }
  if (pipeline_options.skip_damaged) {
    MUSTER_ASSIGN_OR_RETURN(*left_out, damaged.Exchange(left_out_here));
    if (left_out->count == size)
      return DataError(
          fmt::format("all of the {} data is damaged, and on_error \"skip\" leaves that out",
                      SplitName(options.split)));
  }
  return false;
}

}  // namespace

int64_t PassBatchSize(const Job& job, int64_t global_batch_size, int num_replicas,
                      int declared_replicas) {
  if (job.evaluate.batch_size) return *job.evaluate.batch_size * num_replicas;
  const auto part = [](int64_t of, int64_t parts) { return (of + parts - 1) / parts; };
  const int64_t share = part(global_batch_size, std::max(num_replicas, declared_replicas));
  const int64_t each = part(share, job.accumulate_steps);
  return std::min(global_batch_size, each * num_replicas);
}

absl::StatusOr<PassResult> RunPass(const Job& job, Replica* replica, Communicator* communicator,
                                   const PassOptions& options) {
  at::NoGradGuard no_grad;
  PassResult result;
  absl::Status status = CatchProgramErrors("evaluating", [&] {
    const EvaluationModes modes(replica);
    EvaluationImpl evaluation(replica, options.split);
    auto stopped = RunBatches(job, replica, communicator, options, &evaluation, &result.left_out);
    ThrowIfError(stopped.status());
    result.stopped = *stopped;
    if (result.stopped) return;
    ThrowIfError(communicator->AllReduce(BufferOf(evaluation.sums), ReduceOp::kSum)->Wait());
    for (const auto& [name, reported] : ReduceReported(evaluation, communicator))
      result.metrics[name] = reported.mean();
    const at::Tensor host = evaluation.sums.to(at::kCPU);
    const double* sums = host.const_data_ptr<double>();
    for (const auto& [name, value] : MetricResults(*replica, sums + 2))
      result.metrics[name] = value;
    const double divisor = evaluation.Divisor(sums);
    if (divisor > 0) result.metrics["loss"] = sums[0] / divisor;
    result.examples = static_cast<int64_t>(sums[1]);
    result.summary = std::move(evaluation.summary);
    if (!options.summary) return;
    for (ImageReport& image : MetricImages(*replica, sums + 2))
      result.summary.images.push_back(std::move(image));
  });
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<PartSums> EvaluatePart(const Job& job, Replica* replica, Split split,
                                      data::Batch batch, int64_t examples, SummaryData* shown) {
  at::NoGradGuard no_grad;
  PartSums part;
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("evaluating", [&] {
    const EvaluationModes modes(replica);
    EvaluationImpl evaluation(replica, split);
    evaluation.summary_wanted = shown != nullptr;
    ThrowIfError(RunBatch(job, replica, std::move(batch), examples, &evaluation));
    const at::Tensor host = evaluation.sums.to(at::kCPU);
    part.sums.assign(host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
    part.loss_divisor = part.sums.back();
    part.sums.pop_back();
    for (const auto& [name, totals] : evaluation.values) part.values[name] = SumOf(totals);
    if (shown != nullptr) *shown = std::move(evaluation.summary);
  }));
  return part;
}

std::map<std::string, double> MetricResults(const Replica& replica, const double* sums) {
  std::map<std::string, double> results;
  for (const NamedMetric& metric : replica.metrics()) {
    results[metric.name] = metric.metric->Result({sums, sums + metric.metric->width()});
    sums += metric.metric->width();
  }
  return results;
}

std::vector<ImageReport> MetricImages(const Replica& replica, const double* sums) {
  std::vector<ImageReport> images;
  for (const NamedMetric& metric : replica.metrics()) {
    auto image = metric.metric->Image({sums, sums + metric.metric->width()});
    sums += metric.metric->width();
    if (!image || image->pixels.empty()) continue;
    ImageReport report;
    report.tag = metric.name;
    report.count = 1;
    report.height = image->height;
    report.width = image->width;
    report.channels = 3;
    report.pixels = std::move(image->pixels);
    images.push_back(std::move(report));
  }
  return images;
}

namespace {

// A stream cannot continue after a damaged example, because the start of the next example is
// unknown.
absl::Status CheckSkips(const Replica& replica, const data::Dataset& dataset,
                        const std::string& name) {
  if (dataset.size() >= 0 || !replica.job_datasets().options().skip_damaged)
    return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "data.on_error is \"skip\", and the {} dataset does not know its size, so that no example of "
      "it can be left out: give it one, or use \"fail\"",
      name));
}

}  // namespace

absl::StatusOr<data::DatasetPtr> MakeDataset(const Replica& replica, Split split,
                                             bool may_be_unsized) {
  const DatasetDeclaration& declaration = replica.datasets().at(split);
  absl::StatusOr<data::DatasetPtr> made;
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors(fmt::format("making the {} dataset", SplitName(split)),
                                            [&] { made = declaration.make(); }));
  MUSTER_RETURN_IF_ERROR(made.status());
  if (*made == nullptr)
    return ProgramError(fmt::format("the {} dataset is null", SplitName(split)));
  if (!may_be_unsized) MUSTER_RETURN_IF_ERROR(data::CheckSized(**made, SplitName(split)));
  MUSTER_RETURN_IF_ERROR(CheckSkips(replica, **made, SplitName(split)));
  return *std::move(made);
}

absl::StatusOr<std::vector<data::DatasetPtr>> MakeNamedDatasets(const Replica& replica) {
  std::vector<data::DatasetPtr> all;
  for (const NamedDataset& named : replica.named_datasets()) {
    absl::StatusOr<data::DatasetPtr> made;
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors(fmt::format("making the dataset \"{}\"", named.name),
                                              [&] { made = named.make(); }));
    MUSTER_RETURN_IF_ERROR(made.status());
    if (*made == nullptr)
      return ProgramError(fmt::format("the dataset \"{}\" is null", named.name));
    if ((*made)->size() == 0)
      return ConfigurationError(fmt::format("the dataset \"{}\" is empty", named.name));
    MUSTER_RETURN_IF_ERROR(CheckSkips(replica, **made, fmt::format("\"{}\"", named.name)));
    all.push_back(*std::move(made));
  }
  return all;
}

absl::Status CheckForServers(const Replica& replica) {
  const data::DataOptions& options = replica.job_datasets().options();
  const data::AutoShard shard = options.auto_shard;
  if (shard != data::AutoShard::kData) {
    return ConfigurationError(fmt::format(
        "data.auto_shard is \"{}\", and the chief of a parameter-server job leases every example "
        "by its "
        "number to whichever worker is next: leave it out, or use multi_worker_mirrored",
        data::kAutoShardNames[static_cast<int>(shard)]));
  }
  if (replica.named_datasets().empty()) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "the program declares the dataset \"{}\" besides its splits, and the chief of a "
      "parameter-server job leases examples of the splits alone: use multi_worker_mirrored, or "
      "read it within the program",
      replica.named_datasets().front().name));
}

}  // namespace muster
