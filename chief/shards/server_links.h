// ServerLinks makes the chief's calls to the ps tasks of a job. It has one thread per task. The
// thread asks the handler for the next call, makes this call, and passes the result to the handler.
#pragma once

#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/shards/shard_client.h"
#include "chief/shards/shard_servers.h"
#include "common/base/wait.h"

namespace muster::chief {

class ServerLinks {
 public:
  using Answer = std::variant<std::monostate, proto::CreateReply, proto::BeatReply>;
  // Chooses calls and receives their results. Called on the threads of ServerLinks.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual ServerCall ChooseCall(int task) = 0;
    virtual void OnAnswer(int task, const ServerCall& call, Answer answer) = 0;
    virtual void OnFailure(int task, const ServerCall& call, const absl::Status& status) = 0;
  };

  // `handler` must outlive this object.
  ServerLinks(std::vector<std::unique_ptr<ShardClient>> clients, Handler* handler);
  ~ServerLinks() { Stop(); }

  // Starts the threads. `create` is the request for calls of kind kCreate.
  void Start(proto::CreateRequest create);
  // Cancels the calls in progress. Blocks until the threads have ended.
  void Stop();
  // Thread-safe. Makes the thread of `task` ask the handler for a call at once, without waiting for
  // ServerCall::next.
  void Wake(int task);
  void WakeAll();

  // Thread-safe. Returns the client of a task. The client remains valid when another process
  // becomes this task.
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

}  // namespace muster::chief
