// Applies planned faults (--fault) to a training member. A fault may occur at a change of phase, at
// a rejoin, when a generation forms or ends, and on the member's own links.
#pragma once

#include <atomic>
#include <memory>

#include "common/base/faults/faults.h"
#include "common/membership/member.h"
#include "common/train/membership.h"
#include "common/transport/faulty_links.h"

namespace muster {

namespace transport {
struct ListenerOptions;
}

// Wraps `membership`. Both arguments outlive the result.
std::unique_ptr<Membership> MakeFaultyMembership(Membership* membership, Faults* faults);

// Carries out --fault drop and freeze in this process. Outlives the Member and the DataListener.
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

}  // namespace muster
