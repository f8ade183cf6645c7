// The state of a chief that its successor needs, apart from the shards. The ps tasks store it as
// text and do not parse it. All functions are pure.
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

namespace muster {

// Limit in bytes of the integer buffers in a record. The chief sends its record every second.
inline constexpr size_t kMostRecordedIntegers = 64 << 10;

struct ChiefRecord {
  uint64_t view = 0;
  Placements placements;
  std::vector<Holders> awaited;  // Indexed by shard: the holders of a shard that no task serves.
  std::vector<std::pair<int, uint64_t>> workers;  // Index and incarnation.
  Json work;                                      // See WorkTable::ToRecord.
  bool validation_due = false, test_due = false;
  double epoch_seconds = 0;  // Time since the current epoch of the data began.
  // The buffers that differ from their values in build(). Absent if they exceed
  // kMostRecordedIntegers.
  std::optional<IntegerBuffers> integers;
  Json callbacks;  // See checkpoint::CallbackRecord; null if there are none.
  // Set once training has ended and its last checkpoint is saved. Workers may already know this and
  // ask for no more work. "" if training is complete, otherwise the reason for an earlier end.
  std::optional<std::string> ended;
};

std::string ToText(const ChiefRecord& record);
// Returns ConfigurationError for malformed JSON, and DataError for other text that no chief wrote.
// WorkTable checks `work`.
absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text);
// Returns true if `record` describes a later state than `other`.
bool IsNewer(const ChiefRecord& record, const ChiefRecord& other);

}  // namespace muster
