// The calls of workers to proto::Leases: checks them, answers them, and holds those to which there
// is no answer yet. Knows the integer buffers that workers report with them. For one thread at a
// time; calls are finished when Answers goes, which is to be without a lock.
//
// What happens in a job wakes no held call but those that may have an answer now, so that the work
// of an event does not grow with the number of workers that wait.
#pragma once

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chief/lease_call.h"
#include "chief/shard_servers.h"
#include "chief/work_table.h"
#include "common/push_pull/variable_messages.h"

namespace muster {

class LeaseCalls {
 public:
  // Calls to be finished.
  struct Answers {
    Answers() = default;
    Answers(const Answers&) = delete;
    Answers& operator=(const Answers&) = delete;
    ~Answers();
    std::vector<std::pair<NextCall::Ptr, grpc::Status>> next;
    std::vector<std::pair<ViewCall::Ptr, grpc::Status>> view;
  };
  struct Program {
    std::vector<VariableSpec> variables;
    std::string digest;  // of their layout
    IntegerBuffers built_integers;
    int64_t global_batch_size = 0;
  };

  // Until Open all calls are refused, and after Close. `table` and `servers` outlive this object.
  void SetProgram(Program program) { program_ = std::move(program); }
  void Open(WorkTable* table, const ShardServers* servers);
  void Close() { state_ = State::kClosed; }
  bool open() const { return state_ == State::kOpen; }

  void Take(NextCall::Ptr call, Answers* answers);
  void Take(ViewCall::Ptr call, Answers* answers);
  // The connection broke.
  void Drop(const NextCall::Ptr& call, Answers* answers);
  void Drop(const ViewCall::Ptr& call, Answers* answers);
  // Those that have an answer by now, or were held for long enough.
  void AnswerHeld(MonotonicTime now, Answers* answers);

  // Integer buffers that are not as they were built: a checkpoint's, or what a worker reported
  // last.
  const IntegerBuffers& integers() const { return integers_; }
  void SetIntegers(IntegerBuffers integers) { integers_ = std::move(integers); }

 private:
  enum class State { kShut, kOpen, kClosed };
  // In the order of arrival.
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
  std::map<int, uint64_t> introduced_;  // incarnations, by worker
  IntegerBuffers integers_;
  // By process, the push after which it reported integers.
  std::map<std::pair<int, uint64_t>, uint64_t> integers_after_;
  HeldNext held_next_;
  HeldView held_view_;
  uint64_t answered_changes_ = 0;  // when all of the held ones were tried
};

}  // namespace muster
