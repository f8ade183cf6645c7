// The calls of a job's chief to its ps tasks: a thread for each task makes those that its handler
// wants, one at a time.
#pragma once

#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/shard_client.h"
#include "chief/shard_servers.h"
#include "common/base/wait.h"

namespace muster {

class ServerLinks {
 public:
  using Answer = std::variant<std::monostate, proto::CreateReply, proto::BeatReply>;
  // Called on the threads of the links.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual ServerCall ChooseCall(int task) = 0;
    virtual void OnAnswer(int task, const ServerCall& call, Answer answer) = 0;
    virtual void OnFailure(int task, const ServerCall& call, const absl::Status& status) = 0;
  };

  // `handler` outlives this object.
  ServerLinks(std::vector<std::unique_ptr<ShardClient>> clients, Handler* handler);
  ~ServerLinks() { Stop(); }

  // `create`: what kCreate sends.
  void Start(proto::CreateRequest create);
  // Ends the calls that are under way; returns when the threads have ended.
  void Stop();
  // Any thread: there may be another call to make.
  void Wake(int task);
  void WakeAll();

  // Any thread. The client of a task, whichever process that is.
  ShardClient& client(int task) { return *links_[task]->client; }
  int size() const { return static_cast<int>(links_.size()); }

 private:
  struct Link {
    explicit Link(std::unique_ptr<ShardClient> to) : client(std::move(to)) {}
    const std::unique_ptr<ShardClient> client;
    absl::Mutex mu;
    CondVar wake;
    bool woken ABSL_GUARDED_BY(mu) = false, stopped ABSL_GUARDED_BY(mu) = false;
    std::thread thread;
  };
  void Run(int task);
  void Make(int task, const ServerCall& call);

  Handler* const handler_;
  proto::CreateRequest create_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace muster
