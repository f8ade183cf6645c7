#include "chief/shards/server_links.h"

#include <utility>

namespace muster::chief {

ServerLinks::ServerLinks(std::vector<std::unique_ptr<ShardClient>> clients, Handler* handler)
    : handler_(handler) {
  for (auto& client : clients) links_.push_back(std::make_unique<Link>(std::move(client)));
}

void ServerLinks::Start(proto::CreateRequest create) {
  create_ = std::move(create);
  for (int task = 0; task < size(); ++task)
    links_[task]->thread = std::thread([this, task] { Run(task); });
}

void ServerLinks::Stop() {
  for (const auto& link : links_) {
    link->client->Cancel();
    absl::MutexLock lock(&link->mu);
    link->stopped = true;
    link->wake.SignalAll();
  }
  for (const auto& link : links_)
    if (link->thread.joinable()) link->thread.join();
}

void ServerLinks::Wake(int task) {
  Link& link = *links_[task];
  absl::MutexLock lock(&link.mu);
  link.woken = true;
  link.wake.SignalAll();
}

void ServerLinks::WakeAll() {
  for (int task = 0; task < size(); ++task) Wake(task);
}

void ServerLinks::Run(int task) {
  Link& link = *links_[task];
  while (true) {
    {
      absl::MutexLock lock(&link.mu);
      if (link.stopped) return;
      link.woken = false;  // A later event causes another iteration.
    }
    const ServerCall call = handler_->ChooseCall(task);
    if (call.kind != ServerCall::Kind::kNone) {
      Make(task, call);
      continue;
    }
    absl::MutexLock lock(&link.mu);
    if (!link.woken && !link.stopped) link.wake.WaitUntil(&link.mu, call.next);
  }
}

void ServerLinks::Make(int task, const ServerCall& call) {
  ShardClient& client = *links_[task]->client;
  absl::Status status;
  Answer answer;
  const auto take = [&](auto reply) {
    status = reply.status();
    if (reply.ok()) answer = *std::move(reply);
  };
  switch (call.kind) {
    case ServerCall::Kind::kCreate:
      take(client.Create(create_));
      break;
    case ServerCall::Kind::kSetWorkers:
      status = client.SetWorkers(call.version, call.workers);
      break;
    case ServerCall::Kind::kBeat:
      take(client.Beat(call.record));
      break;
    case ServerCall::Kind::kSetView:
      status = client.SetView(call.view);
      break;
    case ServerCall::Kind::kNone:
      return;
  }
  if (status.ok())
    handler_->OnAnswer(task, call, std::move(answer));
  else
    handler_->OnFailure(task, call, status);
}

}  // namespace muster::chief
