// A thread for each ps task: brings it to the levels that it should have, and beats.
#include <fmt/format.h>

#include <algorithm>

#include "chief/director_impl.h"
#include "common/base/logging.h"
#include "common/push_pull/variable_messages.h"

namespace muster {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);

}  // namespace

proto::CreateRequest DirectorImpl::MakeCreateRequest() const {
  proto::CreateRequest request;
  request.set_run_id(options_.run_id ? options_.run_id() : "");
  *request.mutable_variables() = ToMessages(state_->variables());
  for (const std::string& optimizer : state_->optimizers()) request.add_optimizers(optimizer);
  request.set_parameter_server(Dump(options_.job.parameter_server));
  request.set_servers(static_cast<int>(options_.servers.size()));
  request.set_digest(digest_);
  return request;
}

void DirectorImpl::StartLinks() {
  absl::MutexLock lock(&mu_);
  linked_ = true;
  for (size_t task = 0; task < servers_.size(); ++task)
    servers_[task]->thread = std::thread([this, task] { RunLink(static_cast<int>(task)); });
}

void DirectorImpl::StopLinks() {
  std::vector<std::thread*> threads;
  {
    absl::MutexLock lock(&mu_);
    linked_ = false;
    for (const auto& server : servers_) {
      if (server->client != nullptr) server->client->Cancel();
      server->wake.SignalAll();
      threads.push_back(&server->thread);
    }
  }
  for (std::thread* thread : threads)
    if (thread->joinable()) thread->join();
}

void DirectorImpl::WakeLocked() {
  woken_ = true;
  wake_.SignalAll();
}

void DirectorImpl::FailLocked(const absl::Status& status) {
  if (failed_.ok()) failed_ = status;
  WakeLocked();
}

void DirectorImpl::RunLink(int task) {
  while (LinkStep(task)) {
  }
}

void DirectorImpl::LinkFailed(int task, uint64_t incarnation, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  Server& server = *servers_[task];
  if (server.member.incarnation != incarnation) return;  // it was lost: nobody's business any more
  if (!ShardClient::MayRetry(status)) return FailLocked(status);
  // Whether it is lost, its session tells the coordinator.
  server.next_try = Clock::now() + server.backoff.Next();
}

// One call to the task, or a wait for a reason to make one. False: the end.
bool DirectorImpl::LinkStep(int task) {
  enum class What { kNothing, kCreate, kWorkers, kBeat, kView } what = What::kNothing;
  uint64_t incarnation = 0, workers_version = 0, record_version = 0;
  std::map<int, uint64_t> workers;
  std::string record;
  proto::View view;
  ShardClient* client = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (!linked_) return false;
    Server& server = *servers_[task];
    const MonotonicTime now = Clock::now();
    client = server.client.get();
    incarnation = server.member.incarnation;
    MonotonicTime until = now + kBeat;
    if (incarnation == 0) {
    } else if (now < server.next_try) {
      until = server.next_try;
    } else if (!server.created) {
      what = What::kCreate;
    } else if (server.workers < workers_version_) {
      what = What::kWorkers;
    } else if (server.record < record_version_ || now >= server.next_beat) {
      what = What::kBeat;
    } else if (server.view < view_.number() && RecordIsKeptLocked()) {
      what = What::kView;
    } else {
      until = server.next_beat;
    }
    if (what == What::kNothing) {
      server.wake.WaitUntil(&mu_, until);
      return true;
    }
    workers_version = workers_version_;
    if (table_ != nullptr) workers = table_->workers();
    record = record_;
    record_version = record_version_;
    view = view_;
  }
  absl::Status status;
  absl::StatusOr<proto::CreateReply> created = proto::CreateReply();
  absl::StatusOr<proto::BeatReply> beaten = proto::BeatReply();
  absl::StatusOr<proto::SetWorkersReply> told = proto::SetWorkersReply();
  if (what == What::kCreate) {
    created = client->Create(MakeCreateRequest());
    status = created.status();
  } else if (what == What::kWorkers) {
    told = client->SetWorkers(workers_version, workers);
    status = told.status();
  } else if (what == What::kBeat) {
    beaten = client->Beat(record);
    status = beaten.status();
  } else {
    status = client->SetView(view);
  }
  if (!status.ok()) {
    LinkFailed(task, incarnation, status);
    return true;
  }
  Answered answered;
  absl::MutexLock lock(&mu_);
  Server& server = *servers_[task];
  if (server.member.incarnation != incarnation) return true;
  server.backoff.Reset();
  if (what == What::kCreate) {
    CreatedLocked(task, *std::move(created));
  } else if (what == What::kWorkers) {
    server.workers = workers_version;
    lost_pushes_.Take(told->lost());
  } else if (what == What::kBeat) {
    server.record = record_version;
    server.next_beat = Clock::now() + kBeat;
    BeatLocked(task, *beaten);
  } else {
    server.view = view.number();
  }
  CheckLevelsLocked();
  if (running_) AnswerHeldLocked(Clock::now(), &answered);
  return true;
}

bool DirectorImpl::RecordIsKeptLocked() const {
  return std::any_of(servers_.begin(), servers_.end(), [first = view_record_](const auto& server) {
    return server->present() && server->record >= first;
  });
}

// What changed at one ps may be what others, or workers, wait for.
void DirectorImpl::CheckLevelsLocked() {
  bool all = view_.number() > 0;
  for (const auto& server : servers_) {
    all = all && (!server->present() || server->view >= view_.number());
    server->wake.SignalAll();
  }
  if (all && current_view_ != view_.number()) {
    current_view_ = view_.number();
    LogInfo("view {}.{}: {}", current_view_ >> 32, current_view_ & 0xffffffff,
            Describe(placements_));
  }
  WakeLocked();
}

}  // namespace muster
