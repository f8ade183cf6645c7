// Applies planned faults (--fault, docs/faults.md) to a member, a task that takes part in training.
// A fault occurs when the member changes its phase, asks for a generation, connects for a
// generation or finishes. Other faults affect the member's connections. A generation is a period of
// training with fixed members.
#pragma once

#include <atomic>
#include <memory>

#include "common/base/faults/faults.h"
#include "common/membership/member.h"
#include "common/train/membership.h"
#include "common/transport/faulty_links.h"

namespace muster::transport {
struct ListenerOptions;
}

namespace muster::membership {

// Returns a Membership that applies faults and forwards all calls to `membership`. Both arguments
// must outlive the result.
std::unique_ptr<Membership> MakeFaultyMembership(Membership* membership, Faults* faults);

// Carries out the faults `drop` and `freeze`, which affect the connections of this process. Must
// outlive the Member and the DataListener.
class FaultyMember {
 public:
  explicit FaultyMember(Faults* faults);
  ~FaultyMember();
  // Changes the options so that the faults affect the data connections or the session (the gRPC
  // stream to the chief). Called before the DataListener or the Member is made.
  void Adapt(transport::ListenerOptions* options);
  void Adapt(MemberOptions* options);

 private:
  void Drop(FaultLink link);
  void Freeze(FaultLink link, Duration time);
  SessionFault TakeSessionFault();

  Faults* const faults_;
  transport::FaultyLinks links_;
  std::atomic<bool> drop_control_ = false;
  // A time of Clock, in ticks since the clock's epoch. 0: the session is not frozen.
  std::atomic<Duration::rep> control_frozen_until_ = 0;
};

}  // namespace muster::membership
