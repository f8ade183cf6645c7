#include "chief/lease_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster {

bool LeaseTable::NoneLeft() const {
  const int64_t open = static_cast<int64_t>(held_.size() + returned_.size());
  return epoch_ >= options_.epochs ||
         (options_.max_steps && completed_ + open >= *options_.max_steps);
}

Lease LeaseTable::TakeNew() {
  Lease lease{next_id_++, epoch_, offset_, std::min(offset_ + options_.batch, options_.examples)};
  offset_ = lease.end;
  const int64_t left = options_.examples - offset_;
  if (left == 0 || (options_.drop_remainder && left < options_.batch)) {
    ++epoch_;
    offset_ = 0;
  }
  return lease;
}

LeaseTable::Answer LeaseTable::Next(int worker) {
  Answer answer;
  if (options_.drop_remainder && options_.examples < options_.batch) return answer;
  if (!returned_.empty()) {
    answer.lease = returned_.front();
    answer.lease.again = true;
    returned_.pop_front();
    ++repeated_;
  } else if (NoneLeft()) {
    answer.state = held_.empty() ? State::kDone : State::kWait;
    answer.reason = fmt::format("{} of the last leases are out", held_.size());
    return answer;
  } else if (options_.epoch_barrier && offset_ == 0 && !held_.empty()) {
    answer.state = State::kWait;
    answer.reason = fmt::format("{} leases of the epoch before are out", held_.size());
    return answer;
  } else {
    answer.lease = TakeNew();
  }
  answer.state = State::kLeased;
  held_[worker] = answer.lease;
  return answer;
}

bool LeaseTable::Complete(int worker, int64_t lease) {
  const auto held = held_.find(worker);
  if (held == held_.end() || held->second.id != lease) return false;
  ++completed_;
  examples_ += held->second.examples();
  held_.erase(held);
  return true;
}

bool LeaseTable::Lose(int worker) {
  const auto held = held_.find(worker);
  if (held == held_.end()) return false;
  const auto later = std::find_if(returned_.begin(), returned_.end(),
                                  [&](const Lease& lease) { return lease.id > held->second.id; });
  returned_.insert(later, held->second);
  held_.erase(held);
  return true;
}

bool LeaseTable::done() const { return NoneLeft() && held_.empty() && returned_.empty(); }

int64_t LeaseTable::completed_epoch() const {
  int64_t first = epoch_;  // that is not
  for (const auto& [worker, lease] : held_) first = std::min(first, lease.epoch);
  for (const Lease& lease : returned_) first = std::min(first, lease.epoch);
  return first - 1;
}

LeaseTable::Record LeaseTable::ToRecord() const {
  Record record{epoch_, offset_, completed_, examples_, repeated_, next_id_, {}};
  for (const auto& [worker, lease] : held_) record.open.push_back(lease);
  record.open.insert(record.open.end(), returned_.begin(), returned_.end());
  std::sort(record.open.begin(), record.open.end(),
            [](const Lease& a, const Lease& b) { return a.id < b.id; });
  return record;
}

LeaseTable LeaseTable::FromRecord(const Options& options, const Record& record) {
  LeaseTable table(options);
  table.epoch_ = record.epoch;
  table.offset_ = record.offset;
  table.completed_ = record.completed;
  table.examples_ = record.examples;
  table.repeated_ = record.repeated;
  table.next_id_ = record.next_id;
  table.returned_.assign(record.open.begin(), record.open.end());
  return table;
}

void ClockTable::Join(int worker) {
  int64_t slowest = 0;
  bool first = true;
  for (const auto& [other, clock] : clocks_) {
    slowest = first ? clock : std::min(slowest, clock);
    first = false;
  }
  clocks_[worker] = slowest;
}

void ClockTable::Tick(int worker) {
  if (const auto found = clocks_.find(worker); found != clocks_.end()) ++found->second;
}

int ClockTable::WaitsFor(int worker) const {
  const auto own = clocks_.find(worker);
  if (own == clocks_.end() || !max_staleness_) return -1;
  for (const auto& [other, clock] : clocks_)
    if (clock < own->second - *max_staleness_) return other;
  return -1;
}

int64_t ClockTable::clock(int worker) const {
  const auto found = clocks_.find(worker);
  return found == clocks_.end() ? 0 : found->second;
}

}  // namespace muster
