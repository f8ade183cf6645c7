// The record of TrainingLeases. A restarted chief completes the record with the reports of workers.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "chief/leases/training_leases.h"
#include "common/base/json/json_integer.h"
#include "muster/status.h"

namespace muster::chief {
namespace {

Json LeaseToJson(const Lease& lease) {
  return Json::array({lease.id, lease.epoch, lease.begin, lease.end});
}

Json LeasesToJson(const LeaseTable::Record& leases) {
  Json open = Json::array();
  for (const Lease& lease : leases.open) open.push_back(LeaseToJson(lease));
  return {{"epoch", leases.epoch},         {"offset", leases.offset},
          {"completed", leases.completed}, {"examples", leases.examples},
          {"repeated", leases.repeated},   {"repeated_examples", leases.repeated_examples},
          {"next_id", leases.next_id},     {"open", std::move(open)}};
}

// Throws Json's exceptions if `json` is malformed.
LeaseTable::Record LeasesFromJson(const Json& json) {
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
  return record;
}

// Returns whether the record is possible for a table with these options.
bool Fits(const LeaseTable::Record& record, const LeaseTable::Options& options) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto counts = {record.completed, record.examples, record.repeated,
                       record.repeated_examples};
  if (record.epoch < 0 || record.epoch > kMax || record.offset < 0 ||
      record.offset >= options.examples || std::min(counts) < 0)
    return false;
  const auto at = LeaseTable::RecordAt(options, record.epoch, record.offset, 0, 0);
  if (record.next_id != at.next_id) return false;
  return std::all_of(record.open.begin(), record.open.end(), [&](const Lease& lease) {
    return lease.id > 0 && lease.id < record.next_id && lease.epoch >= 0 &&
           lease.epoch <= record.epoch && lease.begin >= 0 && lease.begin < lease.end &&
           lease.end <= options.examples;
  });
}

}  // namespace

bool TrainingLeases::Adopt(int worker, int64_t id) {
  if (!leases_.Reach(id)) return false;
  leases_.Adopt(worker, id);
  return true;
}

Json TrainingLeases::ToRecord(bool recovering) const {
  LeaseTable::Record leases = leases_.ToRecord();
  // Counts returned leases as repeated, because they will be handed out again, perhaps before the
  // next record.
  for (const Lease& lease : leases_.returned()) {
    if (recovering) break;
    ++leases.repeated;
    leases.repeated_examples += lease.examples();
  }
  Json record = LeasesToJson(leases);
  record["torn_pushes"] = torn_pushes_;
  record["batch"] = options_.leases.batch;
  record["ledger"] = ledger_.ToRecord();
  steps_.AddTo(&record);
  return record;
}

absl::Status TrainingLeases::Read(const Json& json) {
  try {
    const LeaseTable::Record record = LeasesFromJson(json);
    if (json.at("batch") != options_.leases.batch)
      return DataError("the servers' record of leases was made with another batch size");
    if (!Fits(record, options_.leases))
      return DataError("the servers' record of leases is of other epochs than this job's");
    leases_ = LeaseTable::FromRecord(options_.leases, record);
    torn_pushes_ = JsonIntegerOr(json, "torn_pushes", int64_t{0});
    MUSTER_RETURN_IF_ERROR(steps_.Read(json));
    if (!HoldsInt64(json.at("ledger")))
      return DataError("the servers' record of pushes holds numbers that are no integers");
    ledger_ = ShardLedger::FromRecord(options_.shards, json.at("ledger"));
  } catch (const std::exception& error) {
    return DataError(fmt::format("the servers' record of leases cannot be read: {}", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace muster::chief
