#include "chief/leases/work_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/train/shown.h"
#include "muster/status.h"

namespace muster::chief {
namespace {

// Limit of leases per answer, for short batches.
constexpr int kMaxGiven = 16;

bool Wait(std::string reason, proto::NextReply* reply) {
  reply->mutable_wait()->set_reason(std::move(reason));
  return false;
}

// Returns an error for a report that is impossible or that another program made.
absl::Status CheckReport(const proto::NextRequest& request, size_t metric_sums) {
  const int worker = request.worker().worker();
  for (const proto::BatchDone& done : request.done())
    if (static_cast<size_t>(done.metric_sums_size()) != metric_sums)
      return ConfigurationError(
          fmt::format("worker {} tells {} sums of metrics, the chief's program has {}: start all "
                      "tasks with one program",
                      worker, done.metric_sums_size(), metric_sums));
  for (const proto::EvaluationDone& done : request.evaluated())
    if (static_cast<size_t>(done.sums_size()) != metric_sums + 2)
      return ConfigurationError(
          fmt::format("worker {} tells {} sums of an evaluation, the chief's program has {}",
                      worker, done.sums_size(), metric_sums + 2));
  for (const proto::BatchDone& done : request.done())
    MUSTER_RETURN_IF_ERROR(CheckShown(done.shown()));
  for (const proto::EvaluationDone& done : request.evaluated())
    MUSTER_RETURN_IF_ERROR(CheckShown(done.shown()));
  return absl::OkStatus();
}

}  // namespace

WorkTable::WorkTable(const Options& options, const checkpoint::TrainingState& state)
    : options_(options),
      leases_(LeaseTable::FromRecord(options.leases,
                                     LeaseTable::RecordAt(options.leases, state.epoch, state.offset,
                                                          state.step, state.examples))),
      clocks_(options.max_staleness),
      ledger_(options.shards, state.step),
      steps_(options.metric_sums, options.leases.batch, leases_, state) {}

// ---- Members

void WorkTable::SetWorker(int worker, uint64_t incarnation, bool returning) {
  Worker& state = workers_[worker];
  if (state.alive && state.incarnation == incarnation) return;
  if (state.alive) LoseWorker(worker);
  // The same process may return, and still holds its leases.
  const Worker before = std::exchange(state, Worker());
  if (before.incarnation == incarnation)
    state = {.work_invalid = before.work_invalid, .lost = before.lost};
  if (pass_) pass_->PullAgain(worker);
  state.incarnation = incarnation;
  state.alive = true;
  state.returning = returning;
  clocks_.Join(worker);
  ++revision_;
  ++changes_;
}

void WorkTable::LoseWorker(int worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || !found->second.alive) return;
  ++changes_;
  found->second.alive = false;
  const bool unreported = from_record_ && found->second.unreported();
  if (unreported) InvalidateWork(worker);
  for (const Lease& lease : leases_.held_by(worker)) found->second.lost.insert(lease.id);
  const bool returned = leases_.Lose(worker) > 0;
  revision_ += returned;
  torn_pushes_ += returned || unreported;
  if (pass_) pass_->Lose(worker);
  clocks_.Lose(worker);
  FinishRecovery();
}

bool WorkTable::HasSeen(int worker, uint64_t incarnation) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.incarnation == incarnation;
}

bool WorkTable::Knows(int worker, uint64_t incarnation) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.alive && found->second.incarnation == incarnation;
}

std::map<int, uint64_t> WorkTable::workers() const {
  std::map<int, uint64_t> all;
  for (const auto& [index, worker] : workers_)
    if (worker.alive) all[index] = worker.incarnation;
  return all;
}

void WorkTable::PullAll() {
  for (auto& [index, worker] : workers_) worker.pull = true;
}

bool WorkTable::Abandoned(int worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && (found->second.work_invalid || !found->second.lost.empty());
}

// ---- Reports

absl::Status WorkTable::Take(const proto::NextRequest& request) {
  const int index = request.worker().worker();
  Worker& worker = workers_[index];
  MUSTER_RETURN_IF_ERROR(CheckReport(request, options_.metric_sums));
  // If the worker's work is void, its reports do not count. Other workers may have leases with the
  // same ids by now.
  if (!worker.work_invalid) {
    for (const proto::BatchDone& done : request.done()) TakeBatch(index, done);
    for (const proto::EvaluationDone& done : request.evaluated())
      if (pass_) pass_->Take(done);
  }
  const bool adopting = Adopting();
  if (adopting && !worker.reported)
    for (const int64_t id : request.held()) TakeHeld(index, id);
  worker.reported = true;
  if (worker.work_invalid) worker.lost.insert(request.held().begin(), request.held().end());
  worker.work_invalid = false;
  // The worker has dropped all lost leases that it does not name.
  std::erase_if(worker.lost, [&](int64_t id) { return !HoldsId(request, id); });
  if (adopting) FinishRecovery();
  return absl::OkStatus();
}

void WorkTable::TakeBatch(int worker, const proto::BatchDone& done) {
  const int64_t id = done.lease();
  const bool adopting = Adopting();
  if (adopting && (id <= 0 || EvaluationPass::IsPart(id) || !leases_.Reach(id))) return;
  if (adopting) leases_.Adopt(worker, id);
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

std::vector<CompletedStep> WorkTable::TakeCompleted() {
  std::vector<CompletedStep> all(std::make_move_iterator(completed_.begin()),
                                 std::make_move_iterator(completed_.end()));
  completed_.clear();
  return all;
}

// ---- The next work

bool WorkTable::Holds(int worker, int64_t id) const {
  if (EvaluationPass::IsPart(id)) return pass_ && pass_->Holds(worker, id);
  const auto held = leases_.held().find(id);
  return held != leases_.held().end() && held->second.first == worker;
}

bool WorkTable::Answer(const proto::NextRequest& request, const std::string& shut,
                       proto::NextReply* reply) {
  reply->clear_answer();
  reply->clear_more();
  if (Adopting()) return Wait("other workers have to tell first what they did", reply);
  if (AnswerLost(request, reply) || AnswerStart(request, reply)) return true;
  if (request.want() <= 0) {
    reply->mutable_wait();
    return request.start() == 0;
  }
  if (done_) {
    reply->mutable_done();
    return true;
  }
  if (!shut.empty()) return Wait(shut, reply);
  if (pass_) return AnswerPart(request, reply);
  return AnswerLease(request, reply);
}

bool WorkTable::AnswerLost(const proto::NextRequest& request, proto::NextReply* reply) {
  const int worker = request.worker().worker();
  for (const int64_t id : request.held()) {
    if (Holds(worker, id)) continue;
    reply->mutable_lost()->add_leases(id);
    workers_[worker].lost.erase(id);
  }
  return reply->has_lost();
}

bool WorkTable::AnswerStart(const proto::NextRequest& request, proto::NextReply* reply) {
  const auto place = std::find(request.held().begin(), request.held().end(), request.start());
  if (place == request.held().end()) return false;
  // The worker has not pushed the leases that it holds before this one.
  const int64_t later = place - request.held().begin();
  const int slower = clocks_.WaitsFor(request.worker().worker(), later);
  // After a restart, the chief learns here which leases wait.
  if (leases_.SetWaits(request.start(), slower >= 0) && slower >= 0) ++changes_;
  if (slower >= 0)
    return Wait(fmt::format("worker {} is too far behind (max_staleness {})", slower,
                            *options_.max_staleness),
                reply);
  reply->mutable_start()->set_lease(request.start());
  return true;
}

bool WorkTable::AnswerPart(const proto::NextRequest& request, proto::NextReply* reply) {
  proto::Lease part;
  std::string reason = pass_->Offer(request, &part);
  if (!reason.empty()) return Wait(std::move(reason), reply);
  part.set_steps(leases_.completed());
  *reply->mutable_lease() = std::move(part);
  return true;
}

void WorkTable::Offer(int worker, const Lease& lease, proto::Lease* offer) {
  offer->set_id(lease.id);
  offer->set_begin(lease.begin);
  offer->set_end(lease.end);
  // The step that this lease will be if all open leases complete in order. The number of completed
  // leases would be wrong, because workers get leases ahead of time. The step determines the
  // learning rate and the seed.
  offer->set_steps(leases_.StepOf(lease) - 1);
  offer->set_pull(workers_[worker].pull);
  workers_[worker].pull = false;
  const int64_t every = options_.summary_every_steps;
  offer->set_summary(every > 0 && leases_.StepOf(lease) % every == 0);
  proto::Lease::Training& training = *offer->mutable_training();
  training.set_epoch(lease.epoch);
  training.set_wait(lease.waits);
  training.mutable_learning_rates()->insert(rates_.begin(), rates_.end());
}

bool WorkTable::AnswerLease(const proto::NextRequest& request, proto::NextReply* reply) {
  const int worker = request.worker().worker();
  const std::vector<Lease> held = leases_.held_by(worker);
  for (const Lease& lease : held) {
    if (HoldsId(request, lease.id)) continue;
    workers_[worker].pull = true;  // The worker may not have received the earlier request to pull.
    Offer(worker, lease, reply->mutable_lease());
    return true;
  }
  if (held.size() >= static_cast<size_t>(kMaxHeld)) return Wait("two leases are enough", reply);
  const bool waits = clocks_.WaitsFor(worker, static_cast<int64_t>(held.size())) >= 0;
  const LeaseTable::Answer answer = leases_.Next(worker, waits);
  if (answer.state != LeaseTable::State::kLeased) return Wait(answer.reason, reply);
  if (answer.moved) ++changes_;  // The previous worker must drop the lease.
  Offer(worker, answer.lease, reply->mutable_lease());
  // Under a staleness bound each lease may have to wait.
  const int more = options_.max_staleness ? 0 : std::min(request.want(), kMaxGiven) - 1;
  for (int i = 0; i < more; ++i) {
    const LeaseTable::Answer next = leases_.Next(worker);
    if (next.state != LeaseTable::State::kLeased) break;
    Offer(worker, next.lease, reply->add_more());
  }
  return true;
}

// ---- For the director

bool WorkTable::between_steps() const {
  return !Adopting() && leases_.held().empty() && leases_.returned().empty();
}

std::string WorkTable::OutstandingWorkers() const {
  std::set<int> out;
  for (const auto& [id, held] : leases_.held()) out.insert(held.first);
  bool nobodys = !leases_.returned().empty();
  if (pass_ && pass_->AddOutstanding(&out)) nobodys = true;
  for (const auto& [index, worker] : workers_)
    if (from_record_ && worker.alive && worker.unreported()) out.insert(index);
  std::string text;
  for (const int worker : out) text += fmt::format("{}worker {}", text.empty() ? "" : ", ", worker);
  if (nobodys) text += text.empty() ? "a worker that takes a lost one's lease" : "";
  return text.empty() ? "nobody" : text;
}

checkpoint::TrainingState WorkTable::state() const {
  const LeaseTable::Record record = leases_.ToRecord();
  checkpoint::TrainingState state;
  state.step = record.completed;
  state.epoch = record.epoch;
  state.offset = record.offset;
  state.examples = record.examples;
  steps_.CopyTo(&state);
  return state;
}

void WorkTable::StartPass(int split, int64_t examples, int64_t batch) {
  ++changes_;
  EvaluationPass::Options pass;
  pass.split = split;
  pass.examples = examples;
  pass.batch = batch;
  pass.step = leases_.completed();
  pass.workers = options_.workers;
  pass.metric_sums = options_.metric_sums;
  pass.summary = options_.summary_every_steps > 0;
  pass_.emplace(pass);
}

void WorkTable::CancelPass() {
  pass_.reset();
  ++changes_;
}

std::optional<WorkTable::PassResult> WorkTable::pass() const {
  if (!pass_) return std::nullopt;
  return pass_->result();
}

}  // namespace muster::chief
