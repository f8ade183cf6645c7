// The chief's record of its WorkTable. A restarted chief completes the record with the reports of
// workers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "chief/leases/work_table_impl.h"
#include "common/base/json/json_integer.h"
#include "muster/status.h"

namespace muster::chief {

bool WorkTable::Adopting() const {
  return from_record_ && std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) {
           return worker.second.alive && worker.second.returning && !worker.second.reported;
         });
}

void WorkTable::TakeHeld(int worker, int64_t id) {
  if (id <= 0 || (id & kPartBit) != 0) return;
  if (leases_.Reach(id)) leases_.Adopt(worker, id);
}

void WorkTable::FinishRecovery() {
  if (!from_record_ || Adopting()) return;
  from_record_ = false;
  revision_ += !leases_.returned().empty();
  ++changes_;
}

std::string WorkTable::WorkersNotReported() const {
  std::string text;
  for (const auto& [index, worker] : workers_)
    if (from_record_ && worker.alive && worker.returning && !worker.reported)
      text += fmt::format("{}worker {}", text.empty() ? "" : ", ", index);
  return text;
}

void WorkTable::AbandonRecovery() {
  for (auto& [index, worker] : workers_) {
    if (from_record_ && worker.alive && worker.returning && !worker.reported)
      worker.work_invalid = true;
    worker.returning = false;
  }
  FinishRecovery();
}

// ---- As JSON

namespace {

Json LeaseToJson(const Lease& lease) {
  return Json::array({lease.id, lease.epoch, lease.begin, lease.end});
}

// JSON has only finite numbers, and a loss may be infinite or NaN.
Json FromDouble(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}

double ToDouble(const Json& json) {
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

// Returns whether the record is possible for a table with these options.
bool Fits(const LeaseTable::Record& record, const LeaseTable::Options& options) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto counts = {record.completed, record.examples, record.repeated,
                       record.repeated_examples};
  if (record.epoch < 0 || record.epoch > kMax || record.offset < 0 ||
      record.offset >= options.examples || std::min(counts) < 0)
    return false;
  const int64_t batches = LeaseTable(options).batches_per_epoch();
  if (record.next_id != record.epoch * batches + record.offset / options.batch + 1) return false;
  return std::all_of(record.open.begin(), record.open.end(), [&](const Lease& lease) {
    return lease.id > 0 && lease.id < record.next_id && lease.epoch >= 0 &&
           lease.epoch <= record.epoch && lease.begin >= 0 && lease.begin < lease.end &&
           lease.end <= options.examples;
  });
}

}  // namespace

Json WorkTable::ToRecord() const {
  LeaseTable::Record leases = leases_.ToRecord();
  // Counts returned leases as repeated, because they will be handed out again, perhaps before the
  // next record.
  for (const Lease& lease : leases_.returned()) {
    if (from_record_) break;
    ++leases.repeated;
    leases.repeated_examples += lease.examples();
  }
  Json open = Json::array(), staleness = Json::object(), sums = Json::array();
  for (const double sum : epoch_metric_sums_) sums.push_back(FromDouble(sum));
  for (const Lease& lease : leases.open) open.push_back(LeaseToJson(lease));
  for (const auto& [worker, record] : staleness_)
    staleness[std::to_string(worker)] =
        Json::array({record.max, record.pushes, FromDouble(record.sum)});
  Json record = {{"epoch", leases.epoch},
                 {"offset", leases.offset},
                 {"completed", leases.completed},
                 {"examples", leases.examples},
                 {"repeated", leases.repeated},
                 {"repeated_examples", leases.repeated_examples},
                 {"refused_pushes", refused_pushes_},
                 {"torn_pushes", torn_pushes_},
                 {"next_id", leases.next_id},
                 {"open", std::move(open)},
                 {"batch", options_.leases.batch},
                 {"epoch_loss_sum", FromDouble(epoch_loss_sum_)},
                 {"epoch_examples", epoch_examples_},
                 {"epoch_steps", epoch_steps_},
                 {"epoch_metric_sums", std::move(sums)},
                 {"epoch_over", epoch_over_},
                 {"staleness", std::move(staleness)},
                 {"ledger", ledger_.ToRecord()}};
  checkpoint::Extras extras;
  extras.epoch_values = epoch_values_;
  extras.skipped.total = skipped_steps_;
  AddExtras(extras, &record);
  return record;
}

absl::StatusOr<std::unique_ptr<WorkTable>> WorkTable::FromRecord(const Options& options,
                                                                 const Json& json) {
  auto table = std::make_unique<WorkTable>(options, checkpoint::TrainingState());
  try {
    LeaseTable::Record record;
    record.epoch = JsonInteger(json.at("epoch"));
    record.offset = JsonInteger(json.at("offset"));
    record.completed = JsonInteger(json.at("completed"));
    record.examples = JsonInteger(json.at("examples"));
    record.repeated = JsonInteger(json.at("repeated"));
    record.repeated_examples = JsonInteger(json.at("repeated_examples"));
    record.next_id = JsonInteger(json.at("next_id"));
    for (const Json& open : json.at("open"))
      record.open.push_back({JsonInteger(open.at(0)), JsonInteger(open.at(1)),
                             JsonInteger(open.at(2)), JsonInteger(open.at(3))});
    if (json.at("batch") != options.leases.batch)
      return DataError("the servers' record of leases was made with another batch size");
    if (!Fits(record, options.leases))
      return DataError("the servers' record of leases is of other epochs than this job's");
    table->leases_ = LeaseTable::FromRecord(options.leases, record);
    table->refused_pushes_ = JsonIntegerOr(json, "refused_pushes", int64_t{0});
    table->torn_pushes_ = JsonIntegerOr(json, "torn_pushes", int64_t{0});
    table->epoch_loss_sum_ = ToDouble(json.at("epoch_loss_sum"));
    table->epoch_examples_ = JsonInteger(json.at("epoch_examples"));
    table->epoch_steps_ = JsonInteger(json.at("epoch_steps"));
    table->epoch_metric_sums_.clear();
    for (const Json& sum : json.at("epoch_metric_sums"))
      table->epoch_metric_sums_.push_back(ToDouble(sum));
    Json named = json;
    auto extras = checkpoint::TakeExtras(&named);
    MUSTER_RETURN_IF_ERROR(extras.status());
    table->epoch_values_ = extras->epoch_values;
    table->skipped_steps_ = extras->skipped.total;
    table->epoch_over_ = json.at("epoch_over");
    for (const auto& [worker, numbers] : json.at("staleness").items())
      table->staleness_[std::stoi(worker)] = {JsonInteger(numbers.at(0)),
                                              JsonInteger(numbers.at(1)), ToDouble(numbers.at(2))};
    if (!HoldsInt64(json.at("ledger")))
      return DataError("the servers' record of pushes holds numbers that are no integers");
    table->ledger_ = ShardLedger::FromRecord(options.shards, json.at("ledger"));
  } catch (const std::exception& error) {
    return DataError(fmt::format("the servers' record of leases cannot be read: {}", error.what()));
  }
  if (table->epoch_metric_sums_.size() != options.metric_sums)
    return DataError("the servers' record of leases was made with other metrics");
  table->from_record_ = true;
  return table;
}

}  // namespace muster::chief
