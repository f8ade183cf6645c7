#include "common/push_pull/rows/key_counts.h"

namespace muster::push_pull {

int64_t KeyCounts::Add(uint64_t key) {
  const auto found = counts_.find(key);
  if (found != counts_.end()) return ++found->second;
  if (counts_.size() >= most_) {
    while (2 * counts_.size() > most_) {
      for (auto& [other, count] : counts_) count /= 2;
      std::erase_if(counts_, [](const auto& entry) { return entry.second == 0; });
    }
  }
  return counts_[key] = 1;
}

}  // namespace muster::push_pull
