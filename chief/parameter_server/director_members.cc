// Members of the job, their calls, views, and the restore of shards.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>

#include "chief/parameter_server/director_impl.h"
#include "common/base/logging.h"
#include "common/rpc/server.h"

namespace muster::chief {
namespace {

std::string NewTicket() {
  std::random_device random;
  std::string ticket(32, '\0');
  for (char& c : ticket) c = static_cast<char>(random());
  return ticket;
}

template <typename Request, typename Reply>
grpc::ServerUnaryReactor* Open(typename LeaseCall<Request, Reply>::Handler* handler,
                               grpc::CallbackServerContext* context, const char* name,
                               const Request* request, Reply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, name);
  if (refusal.ok())
    refusal = rpc::RequireSpeaker(*context, fmt::format("worker:{}", request->worker().worker()));
  if (!refusal.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
  return UnaryLeaseCall<Request, Reply>::Open(handler, request, reply);
}

}  // namespace

// ---- Calls of workers

grpc::ServerUnaryReactor* DirectorImpl::Next(grpc::CallbackServerContext* context,
                                             const proto::NextRequest* request,
                                             proto::NextReply* reply) {
  return Open(this, context, "Next", request, reply);
}

grpc::ServerReadReactor<proto::TellPiece>* DirectorImpl::Tell(grpc::CallbackServerContext* context,
                                                              proto::NextReply* reply) {
  return OpenTellCall(this, &tell_calls_, context, reply);
}

grpc::ServerUnaryReactor* DirectorImpl::GetView(grpc::CallbackServerContext* context,
                                                const proto::GetViewRequest* request,
                                                proto::GetViewReply* reply) {
  return Open(this, context, "GetView", request, reply);
}

void DirectorImpl::OnCall(NextCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  calls_.Take(std::move(call), &answers);
  if (table_ != nullptr && (table_->has_completed() || table_->pass())) WakeLocked();
}

void DirectorImpl::OnBroken(NextCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  calls_.Drop(call, &answers);
}

void DirectorImpl::OnCall(ViewCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  calls_.Take(std::move(call), &answers);
}

void DirectorImpl::OnBroken(ViewCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  calls_.Drop(call, &answers);
}

// ---- Members

void DirectorImpl::OnAdmitted(const AdmittedMember& member) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  const auto [type, index] = member.task;
  if (type == TaskType::kWorker) {
    workers_[index] = member;
    if (table_ != nullptr) {
      SetWorkerLocked(index, member);
      NewWorkersLocked();
      servers_.AddWorker(index);
    }
  } else if (type == TaskType::kPs && index < servers_.size()) {
    TakeServerLocked(member);
  }
  WakeLocked();
  calls_.AnswerHeld(Clock::now(), &answers);
}

void DirectorImpl::SetWorkerLocked(int index, const AdmittedMember& member) {
  const bool other_past =
      servers_reset_ && member.again && !table_->HasSeen(index, member.incarnation);
  table_->SetWorker(index, member.incarnation, /*told=*/false);
  if (other_past) table_->InvalidateWork(index);
}

void DirectorImpl::TakeServerLocked(const AdmittedMember& member) {
  const int task = member.task.index;
  const uint64_t before = servers_.member(task).incarnation;
  if (before != 0 && before != member.incarnation)
    LoseServerLocked(task, "another process has taken its place");
  servers_.Admit(member);
  // The same process returns after an interrupted session, and still holds its state.
  if (before == member.incarnation || links_ == nullptr) return;
  links_->client(task).Allow();
  links_->Wake(task);
}

void DirectorImpl::OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                          bool ended) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  const auto [type, index] = task;
  if (type == TaskType::kWorker) {
    const auto found = workers_.find(index);
    if (found == workers_.end() || found->second.incarnation != incarnation) return;
    workers_.erase(found);
    servers_.RemoveWorker(index);
    if (table_ != nullptr) {
      table_->LoseWorker(index);
      NewWorkersLocked();
    }
  } else if (type == TaskType::kPs && index < servers_.size()) {
    if (ended) servers_.Ended(index, incarnation);
    if (servers_.member(index).incarnation == incarnation) LoseServerLocked(index, why);
  }
  WakeLocked();
  calls_.AnswerHeld(Clock::now(), &answers);
}

void DirectorImpl::LoseServerLocked(int task, const std::string& why) {
  if (links_ != nullptr) links_->client(task).Cancel();
  if (servers_.Lose(task, why, Clock::now())) NewViewLocked();
}

// ---- Calls to servers

ServerCall DirectorImpl::ChooseCall(int task) {
  absl::MutexLock lock(&mu_);
  return servers_.NextCall(task, Clock::now());
}

void DirectorImpl::OnFailure(int task, const ServerCall& call, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (servers_.member(task).incarnation != call.incarnation) return;  // That process was lost.
  // Retries. The coordinator decides whether the task is lost.
  if (ShardClient::MayRetry(status)) return servers_.Failed(task, Clock::now());
  if (failed_.ok()) failed_ = status;
  WakeLocked();
}

void DirectorImpl::OnAnswer(int task, const ServerCall& call, ServerLinks::Answer answer) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  if (servers_.member(task).incarnation != call.incarnation) return;
  servers_.Succeeded(task, call, Clock::now());
  if (auto* created = std::get_if<proto::CreateReply>(&answer)) {
    if (servers_.Created(task, std::move(*created))) NewViewLocked();
  } else if (const auto* beaten = std::get_if<proto::BeatReply>(&answer)) {
    const ShardServers::Change change = servers_.HandleBeat(task, *beaten);
    if (change == ShardServers::Change::kView) NewViewLocked();
    if (change == ShardServers::Change::kRecord && table_ != nullptr)
      NewRecordLocked(ProgressLocked());
  }
  // Other tasks or workers may wait for what has changed at this task.
  links_->WakeAll();
  WakeLocked();
  calls_.AnswerHeld(Clock::now(), &answers);
}

// ---- Views, workers and records for the servers

void DirectorImpl::NewViewLocked() {
  servers_.NewView(static_cast<uint64_t>(options_.term()) << 32 | ++view_count_, NewTicket(),
                   table_ != nullptr ? &table_->ledger() : nullptr);
  if (table_ != nullptr) NewRecordLocked(ProgressLocked());
}

void DirectorImpl::NewWorkersLocked() {
  servers_.SetWorkers(table_->workers());
  links_->WakeAll();
}

DirectorImpl::Progress DirectorImpl::ProgressLocked() const {
  return {table_->ToRecord(), table_->workers(), table_->revision()};
}

// Makes the record from which a restarted chief continues.
void DirectorImpl::NewRecordLocked(Progress progress) {
  ChiefRecord record;
  record.view = servers_.view().number();
  record.placements = servers_.placements();
  record.awaited = servers_.awaited();
  record.workers.assign(progress.workers.begin(), progress.workers.end());
  record.work = std::move(progress.work);
  std::tie(record.validation_due, record.test_due) = recorded_.due;
  record.epoch_seconds = Seconds(Clock::now() - recorded_.epoch_start);
  record.ended = recorded_.ended;
  record.callbacks = recorded_.callbacks;
  size_t bytes = 0;
  for (const auto& [name, value] : calls_.integers()) bytes += value.size();
  if (bytes <= kMaxRecordedIntegers) record.integers = calls_.integers();
  servers_.SetRecord(ToText(record), progress.revision);
  links_->WakeAll();
}

// ---- Restoring

// Sends the shard chunk by chunk, so that this process never holds a whole shard.
absl::Status DirectorImpl::FillShard(int shard, ShardClient::Filling* filling) const {
  const std::vector<Chunk>& chunks = setup_.layout.chunks[shard];
  for (int chunk = 0; chunk < static_cast<int>(chunks.size()); ++chunk) {
    if (chunks[chunk].rows()) continue;
    const auto content = state_->Encode(setup_.layout, shard, chunk, kept_.state.step,
                                        kept_.files ? &*kept_.files : nullptr);
    if (!content.ok())
      return Annotate(content.status(),
                      fmt::format("cannot restore shard {} as it was after step {}: ", shard,
                                  kept_.state.step));
    MUSTER_RETURN_IF_ERROR(filling->Write(*content));
  }
  return absl::OkStatus();
}

absl::Status DirectorImpl::FillAll(const std::vector<std::pair<int, int>>& targets) {
  std::vector<std::unique_ptr<ShardClient::Filling>> fillings;
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(targets.size());
  RowFiller::Fillings by_shard;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto [shard, task] = targets[i];
    if (setup_.layout.chunks[shard].empty()) continue;
    ShardClient::Filling* filling = fillings.emplace_back(links_->client(task).Fill()).get();
    by_shard[shard].push_back(filling);
    threads.emplace_back([this, filling, shard = shard, result = &results[i]] {
      *result = FillShard(shard, filling);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) MUSTER_RETURN_IF_ERROR(result);
  RowFiller rows(setup_.layout, by_shard);
  const checkpoint::RowSources sources = kept_.files ? kept_.files->rows : checkpoint::RowSources();
  for (const ServedTable& table : setup_.tables) MUSTER_RETURN_IF_ERROR(rows.Fill(table, sources));
  for (const auto& filling : fillings) MUSTER_RETURN_IF_ERROR(filling->Finish());
  return absl::OkStatus();
}

// Fills the shards that no task has with the state in kept_.
absl::Status DirectorImpl::RestoreShards() {
  std::vector<std::pair<int, int>> targets;
  std::vector<uint64_t> incarnations;
  {
    absl::MutexLock lock(&mu_);
    // All tasks must first have the view without these shards, because it ends all pushes to them.
    if (Complete(servers_.placements()) || !servers_.all_have_view()) return absl::OkStatus();
    targets = servers_.TakeUnserved(Clock::now());
    for (const auto& [shard, task] : targets)
      incarnations.push_back(servers_.member(task).incarnation);
  }
  if (targets.empty()) return absl::OkStatus();
  // If loading failed, the shards would get the values that build() made.
  MUSTER_RETURN_IF_ERROR(kept_.unloaded);
  const absl::Status filled = FillAll(targets);
  Answers answers;
  absl::MutexLock lock(&mu_);
  if (!filled.ok() && !ShardClient::MayRetry(filled)) return filled;
  for (size_t i = 0; i < targets.size(); ++i)
    if (servers_.member(targets[i].second).incarnation != incarnations[i]) return absl::OkStatus();
  if (!filled.ok()) {
    LogWarning("{}; the chief retries", Message(filled));
    return absl::OkStatus();
  }
  RestoredLocked(targets);
  calls_.AnswerHeld(Clock::now(), &answers);
  return absl::OkStatus();
}

void DirectorImpl::RestoredLocked(const std::vector<std::pair<int, int>>& targets) {
  const Placements before = servers_.placements();
  servers_.Restored(targets);
  const proto::View& view = servers_.view();
  for (size_t s = 0; s < before.size(); ++s) {
    if (before[s].primary >= 0 || servers_.placements()[s].primary < 0 || view.number() == 0)
      continue;
    // No task serves the shard in the current view, so all acknowledged updates belong to earlier
    // views.
    const int64_t lost = table_->ledger().Restore(static_cast<int>(s), kept_.state.step,
                                                  view.number(), table_->steps());
    LogWarning("shard {} is restored as it was after step {}: {} updates of it are lost", s,
               kept_.state.step, lost);
  }
  table_->PullAll();
  NewViewLocked();
}

}  // namespace muster::chief
