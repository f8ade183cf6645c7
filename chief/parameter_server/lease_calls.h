// LeaseCalls checks and answers the calls of workers to proto::Leases. With a call of Next, a
// worker asks for a batch. With a call of GetView, a worker asks which ps task serves which part of
// the variables. LeaseCalls holds calls that have no answer yet. It stores the integer buffers that
// workers report in calls of Next. Used by one thread at a time.
//
// LeaseCalls collects answered calls in an Answers object. The calls finish when this object is
// destroyed. The thread that destroys the object must hold no lock. LeaseCalls tries a held call
// again if the WorkTable or the ShardServers have changed, and ends the call after a second.
#pragma once

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/lease_call.h"
#include "chief/shards/shard_servers.h"
#include "common/push_pull/variable_messages.h"

namespace muster::chief {

class LeaseCalls {
 public:
  // Answered calls. Each call finishes with its status when this object is destroyed.
  struct Answers {
    Answers() = default;
    Answers(const Answers&) = delete;
    Answers& operator=(const Answers&) = delete;
    ~Answers();
    std::vector<std::pair<NextCall::Ptr, grpc::Status>> next;
    std::vector<std::pair<ViewCall::Ptr, grpc::Status>> view;
  };
  struct Program {
    std::vector<push_pull::VariableSpec> variables;
    std::string digest;                        // Digest of the variables' layout.
    push_pull::IntegerBuffers built_integers;  // The integer buffers' values after build().
    int64_t global_batch_size = 0;             // In examples.
  };

  // SetProgram is called before Open. Before Open and after Close, all calls are refused. `table`
  // and `servers` must outlive this object.
  void SetProgram(Program program) { program_ = std::move(program); }
  void Open(WorkTable* table, const ShardServers* servers);
  void Close() { state_ = State::kClosed; }
  bool open() const { return state_ == State::kOpen; }

  // Answers a new call or holds it.
  void Take(NextCall::Ptr call, Answers* answers);
  void Take(ViewCall::Ptr call, Answers* answers);
  // Called if the connection of the call has broken. If the call is held, ends it.
  void Drop(const NextCall::Ptr& call, Answers* answers);
  void Drop(const ViewCall::Ptr& call, Answers* answers);
  // Answers each held call if the answer is now known. Also ends calls that were held for a second.
  // The workers of such calls call again.
  void AnswerHeld(MonotonicTime now, Answers* answers);

  // Returns the integer buffers that training has changed since build(). Each value comes from a
  // checkpoint or from the last report of a worker.
  const push_pull::IntegerBuffers& integers() const { return integers_; }
  void SetIntegers(push_pull::IntegerBuffers integers) { integers_ = std::move(integers); }

 private:
  enum class State { kShut, kOpen, kClosed };  // Before Open, after Open, after Close.
  // Both lists are in the order of arrival.
  using HeldNext = std::list<NextCall::Ptr>;
  using HeldView = std::list<ViewCall::Ptr>;

  grpc::Status CheckCaller(const proto::WorkerIdentity& worker) const;
  grpc::Status CheckLayout(const proto::NextRequest& request) const;
  grpc::Status TakeIntegers(const proto::NextRequest& request);
  grpc::Status TakeReport(const NextCall& call, bool* introduce);
  bool Try(MonotonicTime now, NextCall& call);
  bool Try(MonotonicTime now, ViewCall& call);
  template <typename Held, typename Out>
  void AnswerAll(MonotonicTime now, bool changed, Held* held, Out* out);
  uint64_t changes() const { return table_->changes() + servers_->changes(); }

  Program program_;
  State state_ = State::kShut;
  WorkTable* table_ = nullptr;
  const ShardServers* servers_ = nullptr;
  // Maps each worker to the incarnation (a random number) of the process that has sent the digest
  // of the worker's layout.
  std::map<int, uint64_t> introduced_;
  push_pull::IntegerBuffers integers_;
  // Maps a process (worker and incarnation) to NextRequest::buffers_sequence of its newest report
  // of integer buffers.
  std::map<std::pair<int, uint64_t>, uint64_t> integers_after_;
  HeldNext held_next_;
  HeldView held_view_;
  uint64_t answered_changes_ = 0;  // The value of changes() when all held calls were last tried.
};

}  // namespace muster::chief
