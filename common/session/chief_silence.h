// Measures the time since the last message of the chief, in any state of the connection. The result
// is for the supervisor. Reads no clock and does no I/O.
#pragma once

#include <optional>

#include "common/base/pausing_clock.h"

namespace muster {

class ChiefSilence {
 public:
  explicit ChiefSilence(Duration deadline) : deadline_(deadline) {}
  void OnContact(PausingTime now) { last_contact_ = now; }
  // Returns the length of the silence once when it reaches the deadline. Returns zero once when a
  // message arrives after such a silence. Returns nullopt otherwise, and before the first message
  // of the chief.
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
