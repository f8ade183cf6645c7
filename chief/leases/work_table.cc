#include "chief/leases/work_table.h"

#include <fmt/format.h>

#include <utility>

#include "chief/leases/held_ids.h"
#include "common/train/shown.h"
#include "muster/status.h"

namespace muster::chief {
namespace {

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

// Returns "worker 1, worker 2".
std::string NamesOf(const std::set<int>& workers) {
  return workers.empty() ? "" : fmt::format("worker {}", fmt::join(workers, ", worker "));
}

}  // namespace

WorkTable::WorkTable(const Options& options, const checkpoint::TrainingState& state)
    : options_(options), training_(options, state) {}

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
  training_.Join(worker);
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
  for (const Lease& lease : training_.held_by(worker)) found->second.lost.insert(lease.id);
  revision_ += training_.Lose(worker, unreported);
  if (pass_) pass_->Lose(worker);
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

bool WorkTable::Abandoned(int worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && (found->second.work_invalid || !found->second.lost.empty());
}

// ---- Reports

absl::Status WorkTable::Take(const proto::NextRequest& request) {
  const int index = request.worker().worker();
  Worker& worker = workers_[index];
  MUSTER_RETURN_IF_ERROR(CheckReport(request, options_.metric_sums));
  const bool adopting = Adopting();
  // If the worker's work is void, its reports do not count. Other workers may have leases with the
  // same ids by now.
  if (!worker.work_invalid) {
    for (const proto::BatchDone& done : request.done())
      if (!adopting || training_.Adopt(index, done.lease())) training_.Take(index, done);
    for (const proto::EvaluationDone& done : request.evaluated())
      if (pass_) pass_->Take(done);
  }
  if (adopting && !worker.reported)
    for (const int64_t id : request.held()) training_.Adopt(index, id);
  worker.reported = true;
  if (worker.work_invalid) worker.lost.insert(request.held().begin(), request.held().end());
  worker.work_invalid = false;
  // The worker has dropped all lost leases that it does not name.
  std::erase_if(worker.lost, [&](int64_t id) { return !HoldsId(request, id); });
  if (adopting) FinishRecovery();
  return absl::OkStatus();
}

// ---- The next work

bool WorkTable::Holds(int worker, int64_t id) const {
  return training_.Holds(worker, id) || (pass_ && pass_->Holds(worker, id));
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
  std::string reason;
  return training_.Offer(request, reply, &reason) || Wait(std::move(reason), reply);
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
  if (!HoldsId(request, request.start())) return false;
  std::string reason = training_.Start(request);
  if (!reason.empty()) return Wait(std::move(reason), reply);
  reply->mutable_start()->set_lease(request.start());
  return true;
}

bool WorkTable::AnswerPart(const proto::NextRequest& request, proto::NextReply* reply) {
  proto::Lease part;
  std::string reason = pass_->Offer(request, &part);
  if (!reason.empty()) return Wait(std::move(reason), reply);
  part.set_steps(steps());
  *reply->mutable_lease() = std::move(part);
  return true;
}

// ---- For the director

std::string WorkTable::OutstandingWorkers() const {
  std::set<int> out;
  bool nobodys = training_.AddOutstanding(&out);
  if (pass_ && pass_->AddOutstanding(&out)) nobodys = true;
  out.merge(NotReported());
  std::string text = NamesOf(out);
  if (nobodys) text += text.empty() ? "a worker that takes a lost one's lease" : "";
  return text.empty() ? "nobody" : text;
}

void WorkTable::StartPass(int split, int64_t examples, int64_t batch) {
  ++changes_;
  EvaluationPass::Options pass;
  pass.split = split;
  pass.examples = examples;
  pass.batch = batch;
  pass.step = steps();
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

// ---- For a restarted chief

std::set<int> WorkTable::NotReported() const {
  std::set<int> workers;
  if (!from_record_) return workers;
  for (const auto& [index, worker] : workers_)
    if (worker.alive && worker.unreported()) workers.insert(index);
  return workers;
}

absl::StatusOr<std::unique_ptr<WorkTable>> WorkTable::FromRecord(const Options& options,
                                                                 const Json& record) {
  auto table = std::make_unique<WorkTable>(options, checkpoint::TrainingState());
  MUSTER_RETURN_IF_ERROR(table->training_.Read(record));
  table->from_record_ = true;
  return table;
}

void WorkTable::FinishRecovery() {
  if (!from_record_ || Adopting()) return;
  from_record_ = false;
  revision_ += training_.has_returned();
  ++changes_;
}

std::string WorkTable::WorkersNotReported() const { return NamesOf(NotReported()); }

void WorkTable::AbandonRecovery() {
  for (const int index : NotReported()) workers_[index].work_invalid = true;
  for (auto& [index, worker] : workers_) worker.returning = false;
  FinishRecovery();
}

}  // namespace muster::chief
