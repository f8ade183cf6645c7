// Carries out the actions of a member's state machine (state_machine/member_state.h). A member is a
// task that takes part in training. ActionExecutor owns the member's session (the gRPC stream to
// the chief's coordinator) and its flight records (the last events of this process). It can abort
// the communicators of a generation, which is a period of training with fixed members. It takes
// part in `muster trace`.
//
// Thread-safe. The caller of Do must hold the Member's mutex, which guards the state.
#pragma once

#include <functional>
#include <memory>

#include "common/membership/member.h"
#include "common/membership/resources/chief_session.h"
#include "common/membership/resources/communicator_registry.h"
#include "common/membership/resources/member_records.h"
#include "common/session/trace_client.h"

namespace muster::membership {

class ActionExecutor {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(MemberEvent)> on_event;
  };
  // `channel` leads to the chief. If `channel` is null, no session may be opened and flight records
  // are discarded. `options` must outlive this object.
  ActionExecutor(const MemberOptions& options, uint64_t incarnation,
                 const std::shared_ptr<rpc::RenewableChannel>& channel, Callbacks callbacks);

  // Carries out the action and returns true. Returns false for the actions that the caller must
  // carry out: Log, NotifyVerdict, NotifyStuck and NotifySilence.
  bool Do(const MemberAction& action, const MemberState& state, PausingTime now);
  // Stops traces, delivers the flight records and ends the session, in this order. Callbacks may
  // still run until Close returns.
  void Close();

  ChiefSession* session() { return session_.get(); }  // Null without a channel.
  CommunicatorRegistry& communicators() { return communicators_; }
  MemberRecords& records() { return records_; }

 private:
  // Adds this task's measurements to the report. Adds nothing if less than 0.9 s have passed since
  // the last report with measurements.
  void AddStats(proto::Report* report);

  // Starts the client that receives requests for traces. Called when the chief offers the first
  // generation.
  void StartTraces();

  const MemberOptions& options_;
  const uint64_t incarnation_;
  const std::shared_ptr<rpc::RenewableChannel> channel_;  // May be null.
  CommunicatorRegistry communicators_;
  MemberRecords records_;
  std::unique_ptr<ChiefSession> session_;
  MonotonicTime stats_sent_;  // The time of the last report with measurements.
  std::unique_ptr<TraceClient> traces_;
};

}  // namespace muster::membership
