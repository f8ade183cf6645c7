// Aborts communicators on a thread of its own: an abort that does not come back (a GPU that hangs)
// must keep nobody from sending heartbeats, from noticing that it does not, or from leaving.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/collective/communicator.h"

namespace muster {

class Aborter {
 public:
  Aborter();
  // Waits up to kPatience for the aborts under way, and leaves one that hangs to itself.
  ~Aborter();
  Aborter(const Aborter&) = delete;
  Aborter& operator=(const Aborter&) = delete;

  // Any thread; returns at once.
  void Abort(std::vector<std::shared_ptr<Communicator>> communicators, const absl::Status& why);

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // the thread's too
};

}  // namespace muster
