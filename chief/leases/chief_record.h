// A ChiefRecord is the state of a parameter-server job from which a restarted chief continues. It
// does not contain the variables, which the ps tasks (servers) hold. The chief sends the record as
// text to the ps tasks, which store the text without parsing it. All functions are pure.
//
// A shard is the part of the variables that one server holds. A view assigns each shard to a server
// (view_rules.h). A lease is a batch that the chief assigns to a worker (lease_table.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/view_rules.h"
#include "common/push_pull/variable_messages.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::chief {

// Limit for the total size of the integer buffers in a record, in bytes. The limit is small because
// the chief sends a record every second.
inline constexpr size_t kMaxRecordedIntegers = 64 << 10;

struct ChiefRecord {
  uint64_t view = 0;      // The number of the current view.
  Placements placements;  // The content of the current view, indexed by shard.
  // Indexed by shard. If no server serves a shard, its entry lists the processes that may still
  // hold the shard. The chief waits for these processes. For a shard with a server, the entry is
  // empty.
  std::vector<Holders> awaited;
  // Each worker's index and incarnation (a random number that identifies its process).
  std::vector<std::pair<int, uint64_t>> workers;
  Json work;  // The leases and their results: the value of WorkTable::ToRecord.
  // `validation_due`: true if the validation pass after the newest completed step is due.
  // `test_due`: the same for the test pass.
  bool validation_due = false, test_due = false;
  double epoch_seconds = 0;  // Seconds since the current epoch of the data began.
  // The integer buffers that training has changed since the program's build(). nullopt if they
  // exceed kMaxRecordedIntegers.
  std::optional<push_pull::IntegerBuffers> integers;
  Json callbacks;  // A checkpoint::CallbackRecord. Null if there are no callbacks.
  // nullopt until training has ended and the last checkpoint is saved. "" if training is complete,
  // else the reason for the early end. If `ended` has a value, a restarted chief ends the job,
  // because workers that already know of the end ask for no work.
  std::optional<std::string> ended;
};

std::string ToText(const ChiefRecord& record);
// Returns ConfigurationError for malformed JSON, and DataError for any other invalid record. Does
// not check the content of `work`, which WorkTable::FromRecord checks.
absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text);
// Returns true if `record` describes a later state than `other`.
bool IsNewer(const ChiefRecord& record, const ChiefRecord& other);

}  // namespace muster::chief
