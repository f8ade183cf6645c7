// Carries out the actions of a member's state machine on its sessions with the coordinator, its
// communicators and its flight records.
//
// Thread-safe, except Do, which needs the state: the Member's mutex must be held.
#pragma once

#include <functional>
#include <memory>

#include "common/membership/chief_session.h"
#include "common/membership/communicator_registry.h"
#include "common/membership/member.h"
#include "common/membership/member_records.h"

namespace muster {

class MemberHands {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(membership::MemberEvent)> on_event;
  };
  // `channel` leads to the chief. If it is null because none could be made, no session may be
  // opened and records are not kept. The options outlive this object.
  MemberHands(const MemberOptions& options, uint64_t incarnation,
              const std::shared_ptr<rpc::RenewableChannel>& channel, Callbacks callbacks);

  // Returns false if the action is not carried out here: Log, and calls to main.
  bool Do(const membership::MemberAction& action, const membership::MemberState& state,
          PausingTime now);
  // Ends everything in progress, the session last. Callbacks may come until it returns.
  void Close();

  ChiefSession* session() { return session_.get(); }  // Null without a channel.
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
