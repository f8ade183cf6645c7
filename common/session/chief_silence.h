// ChiefSilence measures the time since the chief's last message, whether or not a connection is
// open. The caller reports the result to the supervisor. ChiefSilence reads no clock and does no
// I/O.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void OnContact(PausingTime now) { last_contact_ = now; }
  // The first call after the silence has reached the deadline returns its length. The first call
  // after a message has ended such a silence returns zero. All other calls return nullopt, and so
  // do all calls before the chief's first message.
  std::optional<Duration> TakeChange(PausingTime now) {
    if (!last_contact_) return std::nullopt;
    const Duration silence = now - *last_contact_;
    if ((silence >= deadline_) == reported_) return std::nullopt;
    reported_ = !reported_;
    return reported_ ? silence : Duration::zero();
  }

 private:
  Duration deadline_;
  std::optional<PausingTime> last_contact_;
  bool reported_ = false;
};

}  // namespace muster
