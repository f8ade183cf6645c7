// Aborts communicators on its own thread. If an abort hangs (for example, because of a GPU), the
// process can still send heartbeats, detect the hang, and exit.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/collective/communicator.h"

namespace muster {

class Aborter {
 public:
  Aborter();
  // Blocks for at most kPatience until the current aborts return. Leaves the thread running if an
  // abort hangs.
  ~Aborter();
  Aborter(const Aborter&) = delete;
  Aborter& operator=(const Aborter&) = delete;

  // Thread-safe. Does not block.
  void Abort(std::vector<std::shared_ptr<collective::Communicator>> communicators,
             const absl::Status& why);

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // Shared with the thread.
};

}  // namespace muster
