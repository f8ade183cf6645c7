// ChiefSilence measures the time since the chief's last message, with or without an open
// connection. A member reports the results of TakeChange to the program that started the member.
// ChiefSilence reads no clock and does no I/O.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void OnContact(PausingTime now) { last_contact_ = now; }
  // Called regularly. The chief counts as silent while its last message is at least `deadline` old.
  // Returns the time since the last message when the chief becomes silent, and zero when the chief
  // is heard again. Returns nullopt if nothing has changed since the last call, and before the
  // chief's first message.
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
