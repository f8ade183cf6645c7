#include "chief/leases/training_leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "chief/leases/held_ids.h"
#include "common/base/logging.h"

namespace muster::chief {
namespace {

// Limit of leases per answer, for short batches.
constexpr int kMaxGiven = 16;

}  // namespace

TrainingLeases::TrainingLeases(const Options& options, const checkpoint::TrainingState& state)
    : options_(options),
      leases_(LeaseTable::FromRecord(options.leases,
                                     LeaseTable::RecordAt(options.leases, state.epoch, state.offset,
                                                          state.step, state.examples))),
      clocks_(options.max_staleness),
      ledger_(options.shards, state.step),
      steps_(options.metric_sums, options.leases.batch, leases_, state) {}

// ---- Workers

void TrainingLeases::Join(int worker) {
  pull_requested_.erase(worker);
  clocks_.Join(worker);
}

bool TrainingLeases::Lose(int worker, bool unreported) {
  const bool returned = leases_.Lose(worker) > 0;
  torn_pushes_ += returned || unreported;
  clocks_.Lose(worker);
  return returned;
}

bool TrainingLeases::Holds(int worker, int64_t id) const {
  const auto held = leases_.held().find(id);
  return held != leases_.held().end() && held->second.first == worker;
}

bool TrainingLeases::AddOutstanding(std::set<int>* workers) const {
  for (const auto& [id, held] : leases_.held()) workers->insert(held.first);
  return has_returned();
}

// ---- Calls of workers

void TrainingLeases::Take(int worker, const proto::BatchDone& done) {
  const int64_t id = done.lease();
  const auto held = leases_.held().find(id);
  if (held == leases_.held().end()) return;
  const Lease lease = held->second.second;
  if (!leases_.Complete(worker, id)) return;
  // Wakes calls that wait for the slowest worker or for an epoch's last lease.
  if (clocks_.Tick(worker) || leases_.held().empty()) ++changes_;
  if (ledger_.Accept({done.views().data(), static_cast<size_t>(done.views_size())}))
    LogInfo(
        "batch {} of worker {} was reported after a shard that had its update was restored to an "
        "earlier step",
        id, worker);
  completed_.push_back(steps_.Add(lease, worker, done, leases_));
}

std::string TrainingLeases::Start(const proto::NextRequest& request) {
  const auto place = std::find(request.held().begin(), request.held().end(), request.start());
  // The worker has not pushed the leases that it holds before this one.
  const int64_t later = place - request.held().begin();
  const int slower = clocks_.WaitsFor(request.worker().worker(), later);
  // After a restart, the chief learns here which leases wait.
  if (leases_.SetWaits(request.start(), slower >= 0) && slower >= 0) ++changes_;
  if (slower < 0) return "";
  return fmt::format("worker {} is too far behind (max_staleness {})", slower,
                     *options_.max_staleness);
}

void TrainingLeases::Fill(int worker, const Lease& lease, proto::Lease* offer) {
  offer->set_id(lease.id);
  offer->set_begin(lease.begin);
  offer->set_end(lease.end);
  // The step that this lease will be if all open leases complete in order. The number of completed
  // leases would be wrong, because workers get leases ahead of time. The step determines the
  // learning rate and the seed.
  offer->set_steps(leases_.StepOf(lease) - 1);
  offer->set_pull(pull_requested_.insert(worker).second);
  const int64_t every = options_.summary_every_steps;
  offer->set_summary(every > 0 && leases_.StepOf(lease) % every == 0);
  proto::Lease::Training& training = *offer->mutable_training();
  training.set_epoch(lease.epoch);
  training.set_wait(lease.waits);
  training.mutable_learning_rates()->insert(rates_.begin(), rates_.end());
}

// Before the workers wait for each other, for example at the end of an epoch, each answer has fewer
// leases. Otherwise most workers would wait while one computes its last leases. (Polychronopoulos
// and Kuck: Guided self-scheduling, 1987.)
int64_t TrainingLeases::FairShare() const {
  const int64_t workers = clocks_.workers();
  return workers < 2 ? kMaxGiven : leases_.until_wait() / (2 * workers);
}

bool TrainingLeases::Offer(const proto::NextRequest& request, proto::NextReply* reply,
                           std::string* reason) {
  const int worker = request.worker().worker();
  const std::vector<Lease> held = leases_.held_by(worker);
  for (const Lease& lease : held) {
    if (HoldsId(request, lease.id)) continue;
    // The worker did not receive the answer with these leases, or the request to pull.
    if (!reply->has_lease()) pull_requested_.erase(worker);
    Fill(worker, lease, reply->has_lease() ? reply->add_more() : reply->mutable_lease());
  }
  if (reply->has_lease()) return true;
  if (held.size() >= static_cast<size_t>(kMaxHeld)) {
    *reason = "two leases are enough";
    return false;
  }
  const bool waits = clocks_.WaitsFor(worker, static_cast<int64_t>(held.size())) >= 0;
  // Under a staleness bound each lease may have to wait.
  const int64_t most =
      options_.max_staleness ? 1 : std::min<int64_t>({request.want(), kMaxGiven, FairShare()});
  const LeaseTable::Answer answer = leases_.Next(worker, waits);
  if (answer.state != LeaseTable::State::kLeased) {
    *reason = answer.reason;
    return false;
  }
  if (answer.moved) ++changes_;  // The previous worker must drop the lease.
  Fill(worker, answer.lease, reply->mutable_lease());
  for (int64_t i = 1; i < most; ++i) {
    const LeaseTable::Answer next = leases_.Next(worker);
    if (next.state != LeaseTable::State::kLeased) break;
    Fill(worker, next.lease, reply->add_more());
  }
  return true;
}

// ---- Progress

std::vector<CompletedStep> TrainingLeases::TakeCompleted() {
  std::vector<CompletedStep> all(std::make_move_iterator(completed_.begin()),
                                 std::make_move_iterator(completed_.end()));
  completed_.clear();
  return all;
}

void TrainingLeases::set_gate(const LeaseTable::Gate& gate) {
  if (gate == leases_.gate()) return;
  leases_.set_gate(gate);
  ++changes_;
}

checkpoint::TrainingState TrainingLeases::state() const {
  const LeaseTable::Record record = leases_.ToRecord();
  checkpoint::TrainingState state;
  state.step = record.completed;
  state.epoch = record.epoch;
  state.offset = record.offset;
  state.examples = record.examples;
  steps_.CopyTo(&state);
  return state;
}

}  // namespace muster::chief
