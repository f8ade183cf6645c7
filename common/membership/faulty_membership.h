// Applies planned faults (--fault) to a training member. A fault occurs at a change of phase, at a
// rejoin, when a generation forms or ends, or on the member's links.
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

// Returns a Membership that applies faults and calls `membership`. Both arguments must outlive it.
std::unique_ptr<Membership> MakeFaultyMembership(Membership* membership, Faults* faults);

// Carries out --fault drop and freeze in this process. Must outlive the Member and the
// DataListener.
class FaultyMember {
 public:
  explicit FaultyMember(Faults* faults);
  ~FaultyMember();
  void Adapt(transport::ListenerOptions* options);
  void Adapt(MemberOptions* options);

 private:
  void Drop(FaultLink link);
  void Freeze(FaultLink link, Duration time);
  SessionFault TakeSessionFault();

  Faults* const faults_;
  transport::FaultyLinks links_;
  std::atomic<bool> drop_control_ = false;
  std::atomic<Duration::rep> control_frozen_until_ = 0;  // A time in ticks of Clock.
};

}  // namespace muster::membership
