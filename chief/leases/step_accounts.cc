#include "chief/leases/step_accounts.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/base/json/json_integer.h"

namespace muster::chief {
namespace {

// JSON has only finite numbers, and a loss may be infinite or NaN.
Json FromDouble(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}

double ToDouble(const Json& json) {
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

}  // namespace

StepAccounts::StepAccounts(size_t metric_sums, int64_t batch, const LeaseTable& leases,
                           const checkpoint::TrainingState& state)
    : epoch_loss_sum_(state.epoch_loss_sum),
      epoch_examples_(state.epoch_examples),
      epoch_metric_sums_(state.epoch_metric_sums),
      epoch_values_(state.extras.epoch_values),
      skipped_steps_(state.extras.skipped.total) {
  epoch_metric_sums_.resize(metric_sums);
  const LeaseTable::Record at = leases.ToRecord();
  epoch_over_ = at.offset == 0;
  epoch_steps_ = at.offset / batch;
}

void StepAccounts::BeginEpoch() {
  epoch_loss_sum_ = 0;
  epoch_examples_ = epoch_steps_ = 0;
  std::fill(epoch_metric_sums_.begin(), epoch_metric_sums_.end(), 0.0);
  epoch_values_.clear();
  epoch_over_ = false;
}

CompletedStep StepAccounts::Add(const Lease& lease, int worker, const proto::BatchDone& done,
                                const LeaseTable& leases) {
  if (epoch_over_) BeginEpoch();
  CompletedStep step;
  step.step = leases.completed();
  step.epoch = lease.epoch;
  step.learning_rate = done.learning_rate();
  step.learning_rates.insert(done.learning_rates().begin(), done.learning_rates().end());
  step.gradient_norms.insert(done.gradient_norms().begin(), done.gradient_norms().end());
  step.loss = done.loss();
  step.examples = done.examples();
  step.values.insert(done.values().begin(), done.values().end());
  step.shown = done.shown();
  step.left_out = done.left_out();
  if (done.not_finite_size() > 0) {
    step.not_finite.assign(done.not_finite().begin(), done.not_finite().end());
    step.refused_pushes = ++refused_pushes_;
  }
  skipped_steps_ += done.skipped() ? 1 : 0;
  if (done.loss_scale() > 0) step.loss_scale = {done.loss_scale(), skipped_steps_, done.skipped()};
  for (size_t i = 0; i < epoch_metric_sums_.size(); ++i)
    epoch_metric_sums_[i] += done.metric_sums(static_cast<int>(i));
  step.compute_seconds = done.compute_seconds();
  step.wait_seconds = done.wait_seconds();
  step.input_seconds = done.input_seconds();
  step.worker = worker;
  step.staleness_max = done.staleness_max();
  step.staleness_mean = done.staleness_mean();
  staleness_[worker].Add(done.staleness_max(), done.staleness_mean());
  epoch_loss_sum_ += step.loss * static_cast<double>(step.examples);
  epoch_examples_ += step.examples;
  for (const auto& [name, value] : step.values) {
    const auto weight = done.value_weights().find(name);
    epoch_values_[name].Add(value, weight == done.value_weights().end()
                                       ? static_cast<double>(step.examples)
                                       : weight->second);
  }
  step.step_in_epoch = ++epoch_steps_;
  step.epoch_end = epoch_over_ = leases.completed_epoch() >= lease.epoch;
  step.all_done = leases.done();
  step.epoch_loss_sum = epoch_loss_sum_;
  step.epoch_examples = epoch_examples_;
  step.epoch_metric_sums = epoch_metric_sums_;
  step.epoch_values = epoch_values_;
  return step;
}

void StepAccounts::CopyTo(checkpoint::TrainingState* state) const {
  state->epoch_loss_sum = epoch_loss_sum_;
  state->epoch_examples = epoch_examples_;
  state->epoch_metric_sums = epoch_metric_sums_;
  state->extras.epoch_values = epoch_values_;
  state->extras.skipped.total = skipped_steps_;
}

void StepAccounts::AddTo(Json* record) const {
  Json staleness = Json::object(), sums = Json::array();
  for (const double sum : epoch_metric_sums_) sums.push_back(FromDouble(sum));
  for (const auto& [worker, numbers] : staleness_)
    staleness[std::to_string(worker)] =
        Json::array({numbers.max, numbers.pushes, FromDouble(numbers.sum)});
  (*record)["refused_pushes"] = refused_pushes_;
  (*record)["epoch_loss_sum"] = FromDouble(epoch_loss_sum_);
  (*record)["epoch_examples"] = epoch_examples_;
  (*record)["epoch_steps"] = epoch_steps_;
  (*record)["epoch_metric_sums"] = std::move(sums);
  (*record)["epoch_over"] = epoch_over_;
  (*record)["staleness"] = std::move(staleness);
  checkpoint::Extras extras;
  extras.epoch_values = epoch_values_;
  extras.skipped.total = skipped_steps_;
  AddExtras(extras, record);
}

absl::Status StepAccounts::Read(const Json& record) {
  refused_pushes_ = JsonIntegerOr(record, "refused_pushes", int64_t{0});
  epoch_loss_sum_ = ToDouble(record.at("epoch_loss_sum"));
  epoch_examples_ = JsonInteger(record.at("epoch_examples"));
  epoch_steps_ = JsonInteger(record.at("epoch_steps"));
  const size_t metric_sums = epoch_metric_sums_.size();
  epoch_metric_sums_.clear();
  for (const Json& sum : record.at("epoch_metric_sums"))
    epoch_metric_sums_.push_back(ToDouble(sum));
  Json named = record;
  auto extras = checkpoint::TakeExtras(&named);
  MUSTER_RETURN_IF_ERROR(extras.status());
  epoch_values_ = extras->epoch_values;
  skipped_steps_ = extras->skipped.total;
  epoch_over_ = record.at("epoch_over");
  for (const auto& [worker, numbers] : record.at("staleness").items())
    staleness_[std::stoi(worker)] = {JsonInteger(numbers.at(0)), JsonInteger(numbers.at(1)),
                                     ToDouble(numbers.at(2))};
  if (epoch_metric_sums_.size() != metric_sums)
    return DataError("the servers' record of leases was made with other metrics");
  return absl::OkStatus();
}

}  // namespace muster::chief
