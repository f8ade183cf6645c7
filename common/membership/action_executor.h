// Carries out the actions of a member's state machine. It owns the member's session with the
// coordinator, its communicators and its flight records, and takes part in traces.
//
// Thread-safe. Do requires the Member's mutex, which guards the state.
#pragma once

#include <functional>
#include <memory>

#include "common/membership/chief_session.h"
#include "common/membership/communicator_registry.h"
#include "common/membership/member.h"
#include "common/membership/member_records.h"
#include "common/session/trace_client.h"

namespace muster::membership {

class ActionExecutor {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(MemberEvent)> on_event;
  };
  // `channel` leads to the chief. It may be null: then no session may be opened, and flight records
  // are not kept. The options must outlive this object.
  ActionExecutor(const MemberOptions& options, uint64_t incarnation,
                 const std::shared_ptr<rpc::RenewableChannel>& channel, Callbacks callbacks);

  // Carries out the action. Returns false for actions that the caller must carry out: Log, and
  // those that call functions of MemberOptions.
  bool Do(const MemberAction& action, const MemberState& state, PausingTime now);
  // Ends everything in progress, and the session last. Callbacks may run until Close returns.
  void Close();

  ChiefSession* session() { return session_.get(); }  // Null without a channel.
  CommunicatorRegistry& communicators() { return communicators_; }
  MemberRecords& records() { return records_; }

 private:
  // Adds this task's measurements, about once a second.
  void AddStats(proto::Report* report);

  // Starts to take part in traces. Called at the first generation, because training starts then.
  void StartTraces();

  const MemberOptions& options_;
  const uint64_t incarnation_;
  const std::shared_ptr<rpc::RenewableChannel> channel_;  // May be null.
  CommunicatorRegistry communicators_;
  MemberRecords records_;
  std::unique_ptr<ChiefSession> session_;
  MonotonicTime stats_sent_;  // The last time at which a report had statistics.
  std::unique_ptr<TraceClient> traces_;
};

}  // namespace muster::membership
