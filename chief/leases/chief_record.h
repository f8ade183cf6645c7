// A ChiefRecord is the state that the chief of a parameter-server job leaves for its successor. The
// shards are not part of it. The chief sends the record as text to the ps tasks, which store it
// without parsing it. All functions are pure.
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

// Limit in bytes of the integer buffers in a record. It is small because the chief sends a record
// every second.
inline constexpr size_t kMaxRecordedIntegers = 64 << 10;

struct ChiefRecord {
  uint64_t view = 0;
  Placements placements;
  // Indexed by shard, like `placements`. If no task serves a shard, its entry has the processes
  // that still hold the shard.
  std::vector<Holders> awaited;
  std::vector<std::pair<int, uint64_t>> workers;  // Each worker's index and incarnation.
  Json work;                                      // The result of WorkTable::ToRecord.
  bool validation_due = false, test_due = false;
  double epoch_seconds = 0;  // Time since the current epoch of the data began.
  // The integer buffers that training has changed since build(). nullopt if they exceed
  // kMaxRecordedIntegers.
  std::optional<push_pull::IntegerBuffers> integers;
  Json callbacks;  // A checkpoint::CallbackRecord. Null if there are no callbacks.
  // Set once training has ended and the last checkpoint is saved; nullopt before. "" if training is
  // complete, otherwise the reason for an early end. Workers may already know of the end, and then
  // ask for no more work.
  std::optional<std::string> ended;
};

std::string ToText(const ChiefRecord& record);
// Returns ConfigurationError for malformed JSON, and DataError for any other invalid record. Does
// not check `work`, which WorkTable checks.
absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text);
// Returns true if `record` describes a later state than `other`.
bool IsNewer(const ChiefRecord& record, const ChiefRecord& other);

}  // namespace muster::chief
