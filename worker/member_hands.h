// What a member acts on: its sessions with the coordinator, its communicators and its flight
// records. It does what the state machine says.
//
// Any thread; Do, which needs the state, under the Member's mutex.
#pragma once

#include <functional>
#include <memory>

#include "worker/chief_session.h"
#include "worker/communicator_registry.h"
#include "worker/member.h"
#include "worker/member_records.h"

namespace muster {

class MemberHands {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(membership::MemberEvent)> on_event;
  };
  // `channel` is to the chief. Null: none could be made; then no session may be opened, and records
  // are not kept. The options outlive it.
  MemberHands(const MemberOptions& options, uint64_t incarnation,
              const std::shared_ptr<rpc::RenewableChannel>& channel, Callbacks callbacks);

  // False where the action is none of its own: Log, and what main is told.
  bool Do(const membership::MemberAction& action, const membership::MemberState& state,
          PausingTime now);
  // Ends what is under way, the session last; callbacks may come until it returns.
  void Close();

  ChiefSession* session() { return session_.get(); }  // null without a channel
  CommunicatorRegistry& communicators() { return communicators_; }
  MemberRecords& records() { return records_; }

 private:
  const MemberOptions& options_;
  const uint64_t incarnation_;
  CommunicatorRegistry communicators_;
  MemberRecords records_;
  std::unique_ptr<ChiefSession> session_;
};

}  // namespace muster
