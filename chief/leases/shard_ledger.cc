#include "chief/leases/shard_ledger.h"

#include <algorithm>

namespace muster::chief {
namespace {

// Limit of remembered cuts. A chief rolls back to the last kept cut. A restarted chief rolls back
// to the newest checkpoint that it can read, and fewer than this many are damaged.
constexpr size_t kMaxKept = 32;

}  // namespace

ShardLedger::ShardLedger(int shards, int64_t step) : shards_(shards) {
  Cut(step);
  CommitCut();
}

bool ShardLedger::Accept(std::span<const uint64_t> views) {
  bool late = false;
  for (size_t s = 0; s < std::min(views.size(), shards_.size()); ++s) {
    if (views[s] == 0) continue;
    const bool gone = views[s] <= shards_[s].restored;
    ++(gone ? shards_[s].lost : shards_[s].held);
    late = late || gone;
  }
  return late;
}

void ShardLedger::Cut(int64_t step) {
  cut_ = Kept{step, {}};
  for (const Shard& shard : shards_) cut_->held.push_back(shard.held);
}

void ShardLedger::CommitCut() {
  if (!cut_) return;
  const auto same = std::find_if(kept_.begin(), kept_.end(),
                                 [this](const Kept& kept) { return kept.step == cut_->step; });
  if (same != kept_.end()) {
    *same = *std::move(cut_);
  } else {
    if (kept_.size() >= kMaxKept) kept_.erase(kept_.begin() + 1);
    kept_.push_back(*std::move(cut_));
  }
  cut_.reset();
}

int64_t ShardLedger::Restore(int index, int64_t step, uint64_t view, int64_t steps) {
  Shard& shard = shards_[index];
  const auto kept =
      std::find_if(kept_.begin(), kept_.end(), [step](const Kept& k) { return k.step == step; });
  const int64_t held =
      kept != kept_.end() ? kept->held[index] : std::max<int64_t>(0, shard.held - (steps - step));
  const int64_t lost = shard.held - held;
  shard.held = held;
  shard.lost += lost;
  shard.restored = view;
  return lost;
}

int64_t ShardLedger::lost() const {
  int64_t lost = 0;
  for (const Shard& shard : shards_) lost += shard.lost;
  return lost;
}

Json ShardLedger::ToRecord() const {
  Json shards = Json::array(), kept = Json::array();
  for (const Shard& shard : shards_)
    shards.push_back(Json::array({shard.held, shard.lost, shard.restored}));
  for (const Kept& k : kept_) kept.push_back(Json::array({k.step, k.held}));
  // A later chief may find the files of this cut.
  if (cut_) kept.push_back(Json::array({cut_->step, cut_->held}));
  return {{"shards", std::move(shards)}, {"kept", std::move(kept)}};
}

ShardLedger ShardLedger::FromRecord(int shards, const Json& record) {
  ShardLedger ledger(shards, 0);
  ledger.kept_.clear();
  for (int s = 0; s < shards; ++s) {
    const Json& shard = record.at("shards").at(s);
    ledger.shards_[s] = {shard.at(0), shard.at(1), shard.at(2)};
  }
  for (const Json& kept : record.at("kept")) {
    Kept& k = ledger.kept_.emplace_back();
    k.step = kept.at(0);
    k.held = kept.at(1).get<std::vector<int64_t>>();
    k.held.resize(shards);
  }
  return ledger;
}

}  // namespace muster::chief
