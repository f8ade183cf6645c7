// What a chief leaves with the ps tasks for its successor, beside the state that they hold
// themselves: text that they keep and do not read. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chief/view_rules.h"
#include "common/push_pull/variable_messages.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// Bytes of integer buffers in a record, which travels every second.
inline constexpr size_t kMostRecordedIntegers = 64 << 10;

struct ChiefRecord {
  uint64_t view = 0;
  Placements placements;
  std::vector<Holders> awaited;                   // by shard: who holds one that no task serves
  std::vector<std::pair<int, uint64_t>> workers;  // and their incarnations
  Json work;                                      // WorkTable's record
  bool validation_due = false, test_due = false;
  double epoch_seconds = 0;  // since the epoch under way began
  // Those that are not as build() made them; absent: they have more than kMostRecordedIntegers.
  std::optional<IntegerBuffers> integers;
  Json callbacks;  // checkpoint::CallbackRecord's; null: there are none
  // All is done and saved, and the workers may have been told: nobody comes to work any more. ""
  // where the job was through, else why it ended before.
  std::optional<std::string> ended;
};

std::string ToText(const ChiefRecord& record);
// DataError, with one sentence, for what no chief wrote. `work` is for WorkTable to judge.
absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text);
// Whether it tells of more than `other`.
bool IsNewer(const ChiefRecord& record, const ChiefRecord& other);

}  // namespace muster
