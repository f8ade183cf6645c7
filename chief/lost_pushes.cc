#include "chief/lost_pushes.h"

#include <algorithm>

namespace muster {

void LostPushes::Take(const google::protobuf::RepeatedPtrField<proto::LostPush>& pushes) {
  for (const proto::LostPush& push : pushes) {
    proto::LostPush& known = pushes_[{push.worker(), push.incarnation()}][push.shard()];
    if (push.sequence() < known.sequence()) continue;
    if (push.sequence() > known.sequence()) {
      known = push;
      continue;
    }
    // A backup knows of the same push, or less.
    known.set_chunks(std::max(known.chunks(), push.chunks()));
    known.set_of_chunks(std::max(known.of_chunks(), push.of_chunks()));
    known.set_shards(std::max(known.shards(), push.shards()));
  }
}

int64_t LostPushes::torn(const std::map<Process, uint64_t>& told) const {
  int64_t torn = 0;
  for (const auto& [process, shards] : pushes_) {
    uint64_t newest = 0;
    for (const auto& [shard, push] : shards) newest = std::max(newest, push.sequence());
    if (const auto whole = told.find(process); whole != told.end() && whole->second >= newest)
      continue;
    int whole = 0, expected = 0;
    for (const auto& [shard, push] : shards) {
      if (push.sequence() != newest) continue;
      whole += push.of_chunks() > 0 && push.chunks() >= push.of_chunks();
      expected = std::max(expected, push.shards());
    }
    torn += expected == 0 || whole < expected;
  }
  return torn;
}

}  // namespace muster
