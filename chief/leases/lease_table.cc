#include "chief/leases/lease_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace muster::chief {

int64_t LeaseTable::batches_per_epoch() const {
  const int64_t whole = options_.examples / options_.batch;
  return options_.examples % options_.batch == 0 ? whole : whole + 1;
}

bool LeaseTable::NoneLeft() const {
  return epoch_ >= options_.epochs ||
         (options_.max_steps && completed_ + open() >= *options_.max_steps);
}

bool LeaseTable::Has(int64_t id) const {
  if (id < 1 || id >= kEndOfLeaseIds) return false;
  if (id < next_id_) return true;  // Also beyond the limits, if the job has lower ones by now.
  return (id - 1) / batches_per_epoch() < options_.epochs &&
         (!options_.max_steps || completed_ + open() + (id - next_id_) < *options_.max_steps);
}

// Leases end at multiples of the batch size. If a run resumes at another offset, because the batch
// size has changed, its first lease is shorter.
Lease LeaseTable::TakeNew() {
  const int64_t grid_end = (offset_ / options_.batch + 1) * options_.batch;
  Lease lease{next_id_++, epoch_, offset_, std::min(grid_end, options_.examples)};
  offset_ = lease.end;
  if (offset_ == options_.examples) {
    ++epoch_;
    offset_ = 0;
  }
  return lease;
}

std::string LeaseTable::WhyClosed() const {
  if (NoneLeft()) return fmt::format("{} of the last leases are out", held_.size());
  if (gate_.closed) return "leases out are waited for";
  if (offset_ == 0 && !held_.empty())
    return fmt::format("{} leases of the epoch before are out", held_.size());
  if (gate_.steps && completed_ + static_cast<int64_t>(held_.size()) >= *gate_.steps)
    return fmt::format("step {} is to be saved", *gate_.steps);
  if (gate_.last_epoch && epoch_ > *gate_.last_epoch)
    return fmt::format("epoch {} is not through", *gate_.last_epoch + 1);
  return "";
}

bool LeaseTable::TakeWaiting(Lease* lease) {
  const auto waiting = std::find_if(held_.begin(), held_.end(),
                                    [](const auto& held) { return held.second.second.waits; });
  if (waiting == held_.end()) return false;
  *lease = waiting->second.second;
  ids_of_[waiting->second.first].erase(lease->id);
  held_.erase(waiting);
  return true;
}

LeaseTable::Answer LeaseTable::Next(int worker, bool waits) {
  Answer answer;
  if (!returned_.empty()) {
    answer.lease = returned_.front();
    answer.lease.again = true;
    returned_.pop_front();
    ++repeated_;
    repeated_examples_ += answer.lease.examples();
  } else if (answer.reason = WhyClosed(); answer.reason.empty()) {
    answer.lease = TakeNew();
  } else {
    answer.state = NoneLeft() && held_.empty() ? State::kDone : State::kWait;
    answer.moved = !waits && ids_of_[worker].empty() && TakeWaiting(&answer.lease);
    if (!answer.moved) return answer;
  }
  answer.state = State::kLeased;
  answer.lease.waits = waits;
  Assign(worker, answer.lease);
  return answer;
}

bool LeaseTable::SetWaits(int64_t id, bool waits) {
  const auto held = held_.find(id);
  return held != held_.end() && std::exchange(held->second.second.waits, waits) != waits;
}

void LeaseTable::Assign(int worker, const Lease& lease) {
  held_[lease.id] = {worker, lease};
  ids_of_[worker].insert(lease.id);
}

std::vector<Lease> LeaseTable::held_by(int worker) const {
  std::vector<Lease> leases;
  if (const auto ids = ids_of_.find(worker); ids != ids_of_.end())
    for (const int64_t id : ids->second) leases.push_back(held_.at(id).second);
  return leases;
}

bool LeaseTable::Complete(int worker, int64_t lease) {
  const auto held = held_.find(lease);
  if (held == held_.end() || held->second.first != worker) return false;
  ++completed_;
  examples_ += held->second.second.examples();
  held_.erase(held);
  ids_of_[worker].erase(lease);
  return true;
}

int LeaseTable::Lose(int worker) {
  std::vector<Lease> lost = held_by(worker);
  const auto waiting = std::count_if(lost.begin(), lost.end(), [](auto& l) { return l.waits; });
  for (Lease& lease : lost) {
    lease.waits = false;
    const auto later = std::find_if(returned_.begin(), returned_.end(),
                                    [&](const Lease& other) { return other.id > lease.id; });
    returned_.insert(later, lease);
    held_.erase(lease.id);
  }
  ids_of_.erase(worker);
  return static_cast<int>(lost.size() - waiting);
}

bool LeaseTable::Reach(int64_t id) {
  if (!Has(id)) return false;
  while (next_id_ <= id) returned_.push_back(TakeNew());
  return true;
}

bool LeaseTable::Adopt(int worker, int64_t id) {
  const auto open = std::find_if(returned_.begin(), returned_.end(),
                                 [id](const Lease& lease) { return lease.id == id; });
  if (open == returned_.end()) return false;
  Assign(worker, *open);
  returned_.erase(open);
  return true;
}

int64_t LeaseTable::until_wait() const {
  const auto returned = static_cast<int64_t>(returned_.size());
  const bool ended = offset_ == 0 && open() > 0;  // The epoch before is not complete.
  if (ended || !WhyClosed().empty()) return returned;
  int64_t left = batches_per_epoch() - offset_ / options_.batch;
  if (options_.max_steps) left = std::min(left, *options_.max_steps - completed_ - open());
  if (gate_.steps) left = std::min(left, *gate_.steps - completed_ - open());
  return returned + std::max<int64_t>(left, 0);
}

bool LeaseTable::done() const { return NoneLeft() && held_.empty() && returned_.empty(); }

int64_t LeaseTable::completed_epoch() const {
  // Ids rise with epochs.
  int64_t first = epoch_;  // First epoch that is not complete.
  if (!held_.empty()) first = std::min(first, held_.begin()->second.second.epoch);
  if (!returned_.empty()) first = std::min(first, returned_.front().epoch);
  return first - 1;
}

LeaseTable::Record LeaseTable::ToRecord() const {
  Record record{.epoch = epoch_,
                .offset = offset_,
                .completed = completed_,
                .examples = examples_,
                .repeated = repeated_,
                .repeated_examples = repeated_examples_,
                .next_id = next_id_};
  for (const auto& [id, held] : held_) record.open.push_back(held.second);
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
  table.repeated_examples_ = record.repeated_examples;
  table.next_id_ = record.next_id;
  table.returned_.assign(record.open.begin(), record.open.end());
  return table;
}

LeaseTable::Record LeaseTable::RecordAt(const Options& options, int64_t epoch, int64_t offset,
                                        int64_t completed, int64_t examples) {
  Record record{epoch, offset, completed, examples};
  if (offset >= options.examples) {  // The epoch now has fewer examples.
    ++record.epoch;
    record.offset = 0;
  }
  record.next_id =
      record.epoch * LeaseTable(options).batches_per_epoch() + record.offset / options.batch + 1;
  return record;
}

void ClockTable::Join(int worker) {
  Lose(worker);
  const int64_t slowest = workers_at_.empty() ? 0 : workers_at_.begin()->first;
  clocks_[worker] = slowest;
  ++workers_at_[slowest];
}

void ClockTable::Remove(int64_t clock) {
  if (--workers_at_[clock] == 0) workers_at_.erase(clock);
}

void ClockTable::Lose(int worker) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return;
  Remove(found->second);
  clocks_.erase(found);
}

bool ClockTable::Tick(int worker) {
  const auto found = clocks_.find(worker);
  if (found == clocks_.end()) return false;
  const int64_t slowest = workers_at_.begin()->first;
  ++workers_at_[found->second + 1];
  Remove(found->second++);
  return workers_at_.begin()->first > slowest;
}

int ClockTable::WaitsFor(int worker, int64_t later) const {
  const auto own = clocks_.find(worker);
  if (own == clocks_.end() || !max_staleness_) return -1;
  const int64_t least = own->second + later - *max_staleness_;
  if (workers_at_.begin()->first >= least) return -1;
  return std::find_if(clocks_.begin(), clocks_.end(),
                      [least](const auto& other) { return other.second < least; })
      ->first;
}

}  // namespace muster::chief
