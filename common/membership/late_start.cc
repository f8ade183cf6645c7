#include "common/membership/late_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/host.h"

namespace muster::membership {
namespace {

constexpr Duration kProbe = std::chrono::seconds(1);
constexpr Duration kPause = std::chrono::milliseconds(200);
constexpr Duration kLine = std::chrono::seconds(10);

}  // namespace

absl::StatusOr<std::string> AwaitChief(const LateStart& start) {
  const std::string chief = fmt::format("the chief {} ({})", start.chief_task, start.chief_address);
  const MonotonicTime begun = Clock::now();
  MonotonicTime next_line = begun + kLine, next_look = begun + std::min(start.look, start.patience);
  MonotonicTime sign = begun;  // Last sign of a chief, or of an owner of model_dir.
  int64_t written = start.owner ? start.owner() : 0;
  bool asked = start.finished == nullptr;
  while (rpc::ProbeNamedPort(start.chief_address, kProbe) == rpc::PortState::kRefused) {
    if (start.give_up && start.give_up())
      return Preempted("stopped before the chief was reached, as asked");
    const MonotonicTime now = Clock::now();
    if (now >= next_look) {
      next_look = now + start.look;
      if (start.owner && std::exchange(written, start.owner()) != written) sign = now;
      if (!std::exchange(asked, true))
        if (std::string finished = start.finished(); !finished.empty()) return finished;
    }
    const Duration limit = std::min(sign + start.patience - begun, start.join);
    if (now - begun >= limit)
      return PeerLost(fmt::format("could not reach {} for {:.3g} s{}: connection refused", chief,
                                  Seconds(limit), limit == start.join ? " (timeouts.join)" : ""));
    if (now >= next_line) {
      LogInfo("this task waits for {}: connection refused", chief);
      next_line = now + kLine;
    }
    std::this_thread::sleep_for(kPause);
  }
  return "";
}

}  // namespace muster::membership
