// Aborts communicators on its own thread. An abort that hangs (because of a GPU) must not keep a
// process from sending heartbeats, from detecting the hang, or from leaving.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/collective/communicator.h"

namespace muster {

class Aborter {
 public:
  Aborter();
  // Waits up to kPatience for the current aborts. An abort that hangs is abandoned.
  ~Aborter();
  Aborter(const Aborter&) = delete;
  Aborter& operator=(const Aborter&) = delete;

  // Thread-safe. Does not block.
  void Abort(std::vector<std::shared_ptr<Communicator>> communicators, const absl::Status& why);

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // Shared with the thread.
};

}  // namespace muster
