#include "ps/chief_contact.h"

#include <fmt/format.h>

namespace muster::ps {
namespace {

// Interval of checks whether the view has ended.
constexpr Duration kLook = std::chrono::milliseconds(50);

}  // namespace

absl::Status ChiefContact::Await(const transport::AbortSignal& abort, Duration limit) {
  if (silence_ == Duration::zero()) return absl::OkStatus();
  const MonotonicTime begin = Clock::now();
  absl::MutexLock lock(&mu_);
  for (MonotonicTime now = begin; now - last_contact_ >= silence_; now = Clock::now()) {
    if (abort.is_set()) return Superseded("the view has changed");
    if (now - begin >= limit)
      return DeadlinePassed(fmt::format(
          "this parameter server has not heard from the chief for {:g} s, and acknowledges nothing",
          Seconds(now - last_contact_)));
    changed_.WaitFor(&mu_, kLook);
  }
  return absl::OkStatus();
}

}  // namespace muster::ps
