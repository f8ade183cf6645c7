#include "chief/leases/work_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chief/leases/work_table_impl.h"
#include "common/base/logging.h"
#include "common/train/shown.h"
#include "muster/status.h"

namespace muster::chief {
namespace {

void AddTo(proto::LeftOut* all, const proto::LeftOut& more) {
  all->set_examples(all->examples() + more.examples());
  all->mutable_names()->MergeFrom(more.names());
}

// A worker with this many leases gets no more: the current one, and the next one, which it
// prefetches.
constexpr size_t kMaxHeld = 2;
// Limit of leases per answer, for short batches.
constexpr int kMaxGiven = 16;
// Limit of a pass's batches in one lease. There are fewer if workers would get few leases.
constexpr int64_t kMaxBatchesOfPart = 16;
constexpr int64_t kPartsOfWorker = 4;

bool Contains(const google::protobuf::RepeatedField<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool Wait(std::string reason, proto::NextReply* reply) {
  reply->mutable_wait()->set_reason(std::move(reason));
  return false;
}

}  // namespace

WorkTable::WorkTable(const Options& options, const checkpoint::TrainingState& state)
    : options_(options),
      leases_(LeaseTable::FromRecord(options.leases,
                                     LeaseTable::RecordAt(options.leases, state.epoch, state.offset,
                                                          state.step, state.examples))),
      clocks_(options.max_staleness),
      ledger_(options.shards, state.step) {
  SetState(state);
}

WorkTable::~WorkTable() = default;

void WorkTable::SetState(const checkpoint::TrainingState& state) {
  epoch_loss_sum_ = state.epoch_loss_sum;
  epoch_examples_ = state.epoch_examples;
  epoch_metric_sums_ = state.epoch_metric_sums;
  epoch_metric_sums_.resize(options_.metric_sums);
  epoch_values_ = state.extras.epoch_values;
  skipped_steps_ = state.extras.skipped.total;
  const LeaseTable::Record at = leases_.ToRecord();
  epoch_over_ = at.offset == 0;
  epoch_steps_ = at.offset / options_.leases.batch;
}

// ---- Members

void WorkTable::SetWorker(int worker, uint64_t incarnation, bool returning) {
  Worker& state = workers_[worker];
  if (state.alive && state.incarnation == incarnation) return;
  if (state.alive) LoseWorker(worker);
  // The same process may return, and still holds its leases.
  const Worker before = std::exchange(state, Worker());
  if (before.incarnation == incarnation)
    state = {.work_invalid = before.work_invalid, .lost = before.lost};
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
  const bool unreported = from_record_ && found->second.returning && !found->second.reported;
  if (unreported) InvalidateWork(worker);
  for (const Lease& lease : leases_.held_by(worker)) found->second.lost.insert(lease.id);
  const bool returned = leases_.Lose(worker) > 0;
  revision_ += returned;
  torn_pushes_ += returned || unreported;
  if (pass_)
    for (Pass::Part& part : pass_->parts)
      if (part.holder == worker) part.holder = -1;
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
  for (const proto::BatchDone& done : request.done())
    if (static_cast<size_t>(done.metric_sums_size()) != options_.metric_sums)
      return ConfigurationError(
          fmt::format("worker {} tells {} sums of metrics, the chief's program has {}: start all "
                      "tasks with one program",
                      index, done.metric_sums_size(), options_.metric_sums));
  for (const proto::EvaluationDone& done : request.evaluated())
    if (static_cast<size_t>(done.sums_size()) != options_.metric_sums + 2)
      return ConfigurationError(
          fmt::format("worker {} tells {} sums of an evaluation, the chief's program has {}", index,
                      done.sums_size(), options_.metric_sums + 2));
  for (const proto::BatchDone& done : request.done())
    MUSTER_RETURN_IF_ERROR(CheckShown(done.shown()));
  for (const proto::EvaluationDone& done : request.evaluated())
    MUSTER_RETURN_IF_ERROR(CheckShown(done.shown()));
  // If the worker's work is void, its reports do not count. Other workers may have leases with the
  // same ids by now.
  if (!worker.work_invalid) {
    for (const proto::BatchDone& done : request.done()) TakeBatch(index, done);
    for (const proto::EvaluationDone& done : request.evaluated()) TakeEvaluated(done);
  }
  const bool adopting = Adopting();
  if (adopting && !worker.reported)
    for (const int64_t id : request.held()) TakeHeld(index, id);
  worker.reported = true;
  if (worker.work_invalid) worker.lost.insert(request.held().begin(), request.held().end());
  worker.work_invalid = false;
  // The worker has dropped all lost leases that it does not name.
  std::erase_if(worker.lost, [&](int64_t id) { return !Contains(request.held(), id); });
  if (adopting) FinishRecovery();
  return absl::OkStatus();
}

void WorkTable::TakeBatch(int worker, const proto::BatchDone& done) {
  const int64_t id = done.lease();
  const bool adopting = Adopting();
  if (adopting && (id <= 0 || (id & kPartBit) != 0 || !leases_.Reach(id))) return;
  if (adopting) leases_.Adopt(worker, id);
  const auto held = leases_.held().find(id);
  if (held == leases_.held().end()) return;
  const Lease lease = held->second.second;
  if (!leases_.Complete(worker, id)) return;
  // Wakes calls that wait for the slowest worker or for an epoch's last lease.
  if (clocks_.Tick(worker) || leases_.held().empty()) ++changes_;
  if (ledger_.Accept({done.views().data(), static_cast<size_t>(done.views_size())}))
    LogInfo("batch {} of worker {} was told after a shard that had it went back", id, worker);
  Account(lease, worker, done);
}

void WorkTable::TakeEvaluated(const proto::EvaluationDone& done) {
  Pass::Part* part = pass_ ? pass_->Find(done.lease()) : nullptr;
  if (part == nullptr || part->done) return;
  part->done = true;
  part->holder = -1;
  ++pass_->done;
  for (size_t i = 0; i < pass_->sums.size(); ++i) pass_->sums[i] += done.sums(static_cast<int>(i));
  if (done.has_loss_weights())
    pass_->loss_weights = pass_->loss_weights.value_or(0) + done.loss_weights();
  for (const auto& [name, value] : done.values()) {
    pass_->values[name].sum += value.sum();
    pass_->values[name].weight += value.weight();
  }
  pass_->shown.MergeFrom(done.shown());
  AddTo(&pass_->left_out, done.left_out());
}

void WorkTable::Account(const Lease& lease, int worker, const proto::BatchDone& done) {
  if (epoch_over_) {
    epoch_loss_sum_ = 0;
    epoch_examples_ = epoch_steps_ = 0;
    std::fill(epoch_metric_sums_.begin(), epoch_metric_sums_.end(), 0.0);
    epoch_values_.clear();
    epoch_over_ = false;
  }
  CompletedStep step;
  step.step = leases_.completed();
  step.epoch = lease.epoch;
  step.learning_rate = done.learning_rate();
  step.learning_rates.insert(done.learning_rates().begin(), done.learning_rates().end());
  step.gradient_norms.insert(done.gradient_norms().begin(), done.gradient_norms().end());
  step.loss = done.loss();
  step.examples = done.examples();
  step.values.insert(done.values().begin(), done.values().end());
  step.shown = done.shown();
  step.left_out = done.left_out();
  if (done.not_finite_size() > 0) {
    step.not_finite.assign(done.not_finite().begin(), done.not_finite().end());
    step.refused_pushes = ++refused_pushes_;
  }
  skipped_steps_ += done.skipped() ? 1 : 0;
  if (done.loss_scale() > 0) step.loss_scale = {done.loss_scale(), skipped_steps_, done.skipped()};
  for (size_t i = 0; i < epoch_metric_sums_.size(); ++i)
    epoch_metric_sums_[i] += done.metric_sums(static_cast<int>(i));
  step.compute_seconds = done.compute_seconds();
  step.wait_seconds = done.wait_seconds();
  step.input_seconds = done.input_seconds();
  step.worker = worker;
  step.staleness_max = done.staleness_max();
  step.staleness_mean = done.staleness_mean();
  staleness_[worker].Add(done.staleness_max(), done.staleness_mean());
  epoch_loss_sum_ += step.loss * static_cast<double>(step.examples);
  epoch_examples_ += step.examples;
  for (const auto& [name, value] : step.values) {
    const auto weight = done.value_weights().find(name);
    epoch_values_[name].Add(value, weight == done.value_weights().end()
                                       ? static_cast<double>(step.examples)
                                       : weight->second);
  }
  step.step_in_epoch = ++epoch_steps_;
  step.epoch_end = epoch_over_ = leases_.completed_epoch() >= lease.epoch;
  step.all_done = leases_.done();
  step.epoch_loss_sum = epoch_loss_sum_;
  step.epoch_examples = epoch_examples_;
  step.epoch_metric_sums = epoch_metric_sums_;
  step.epoch_values = epoch_values_;
  completed_.push_back(std::move(step));
}

std::vector<CompletedStep> WorkTable::TakeCompleted() {
  std::vector<CompletedStep> all(std::make_move_iterator(completed_.begin()),
                                 std::make_move_iterator(completed_.end()));
  completed_.clear();
  return all;
}

// ---- The next work

bool WorkTable::Holds(int worker, int64_t id) const {
  if ((id & kPartBit) != 0) {
    const Pass::Part* part = pass_ ? pass_->Find(id) : nullptr;
    return part != nullptr && part->holder == worker;
  }
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
  const int worker = request.worker().worker();
  // First offers the part from an earlier answer that did not arrive.
  int chosen = -1, held = 0;
  for (int i = 0; i < static_cast<int>(pass_->parts.size()); ++i) {
    const Pass::Part& part = pass_->parts[i];
    const bool own = part.holder == worker;
    if (own && Contains(request.held(), pass_->first_id + i))
      ++held;
    else if (own) {
      chosen = i;
      break;
    } else if (chosen < 0 && part.holder < 0 && !part.done)
      chosen = i;
  }
  if (chosen < 0) return Wait("the last parts of a pass are out", reply);
  if (held >= static_cast<int>(kMaxHeld)) return Wait("two parts are enough", reply);
  Pass::Part& part = pass_->parts[chosen];
  Worker& state = workers_[worker];
  proto::Lease& offer = *reply->mutable_lease();
  offer.set_pull(part.holder == worker || state.pull_for_pass);
  state.pull_for_pass = false;
  part.holder = worker;
  offer.set_id(pass_->first_id + chosen);
  offer.set_begin(part.begin);
  offer.set_end(part.end);
  offer.mutable_evaluation()->set_split(pass_->split);
  offer.set_steps(leases_.completed());
  offer.set_summary(chosen == 0 && options_.summary_every_steps > 0);
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
    if (Contains(request.held(), lease.id)) continue;
    workers_[worker].pull = true;  // The worker may not have received the earlier request to pull.
    Offer(worker, lease, reply->mutable_lease());
    return true;
  }
  if (held.size() >= kMaxHeld) return Wait("two leases are enough", reply);
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
  if (pass_)
    for (const Pass::Part& part : pass_->parts) {
      if (part.holder >= 0) out.insert(part.holder);
      nobodys = nobodys || (part.holder < 0 && !part.done);
    }
  for (const auto& [index, worker] : workers_)
    if (from_record_ && worker.alive && worker.returning && !worker.reported) out.insert(index);
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
  state.epoch_loss_sum = epoch_loss_sum_;
  state.epoch_examples = epoch_examples_;
  state.epoch_metric_sums = epoch_metric_sums_;
  state.extras.epoch_values = epoch_values_;
  state.extras.skipped.total = skipped_steps_;
  return state;
}

void WorkTable::StartPass(int split, int64_t examples, int64_t batch) {
  ++changes_;
  pass_ = std::make_unique<Pass>();
  pass_->split = split;
  pass_->first_id = kPartBit | static_cast<int64_t>(split) << 56 | leases_.completed() << 20;
  pass_->sums.resize(2 + options_.metric_sums);
  const int64_t batches = (examples + batch - 1) / batch;
  const int64_t each =
      std::clamp<int64_t>(batches / (kPartsOfWorker * options_.workers), 1, kMaxBatchesOfPart);
  for (int64_t begin = 0; begin < examples; begin += each * batch)
    pass_->parts.push_back({begin, std::min(begin + each * batch, examples)});
  for (auto& [index, worker] : workers_) worker.pull_for_pass = true;
}

void WorkTable::CancelPass() {
  pass_.reset();
  ++changes_;
}

proto::Shown WorkTable::TakeShownInPass() { return std::move(pass_->shown); }

std::optional<WorkTable::PassResult> WorkTable::pass() const {
  if (!pass_) return std::nullopt;
  const double divisor = pass_->loss_weights.value_or(pass_->sums[1]);
  return PassResult{pass_->done,   static_cast<int64_t>(pass_->parts.size()),
                    pass_->sums,   divisor,
                    pass_->values, pass_->left_out};
}

}  // namespace muster::chief
