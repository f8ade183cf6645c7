// The record that a chief leaves with the ps tasks for its successor, besides the shards that they
// hold. The ps tasks store it as text and do not read it. Pure functions.
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

// Limit in bytes of the integer buffers in a record, which is sent every second.
inline constexpr size_t kMostRecordedIntegers = 64 << 10;

struct ChiefRecord {
  uint64_t view = 0;
  Placements placements;
  std::vector<Holders> awaited;  // By shard: who holds a shard that no task serves.
  std::vector<std::pair<int, uint64_t>> workers;  // Index and incarnation.
  Json work;                                      // See WorkTable::ToRecord.
  bool validation_due = false, test_due = false;
  double epoch_seconds = 0;  // Since the current epoch began.
  // The buffers that differ from those of build(). Absent if they exceed kMostRecordedIntegers.
  std::optional<IntegerBuffers> integers;
  Json callbacks;  // See checkpoint::CallbackRecord; null if there are none.
  // Set once everything is done and saved. The workers may have been notified, so none will ask for
  // work again. "" if training is complete, else why it ended earlier.
  std::optional<std::string> ended;
};

std::string ToText(const ChiefRecord& record);
// Returns a DataError of one sentence for text that no chief wrote. WorkTable checks `work`.
absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text);
// Returns whether `record` is of a later state than `other`.
bool IsNewer(const ChiefRecord& record, const ChiefRecord& other);

}  // namespace muster
