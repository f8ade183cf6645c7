// Aborts communicators (common/collective/communicator.h) on a dedicated thread. An abort can hang,
// for example in a GPU driver. The other threads of the process can then still send heartbeats,
// detect the hang, and exit.
#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/collective/communicator.h"

namespace muster {

class Aborter {
 public:
  Aborter();
  // Blocks until all requested aborts have returned, for at most kPatience. If an abort hangs,
  // leaves the thread running.
  ~Aborter();
  Aborter(const Aborter&) = delete;
  Aborter& operator=(const Aborter&) = delete;

  // Requests an abort of each communicator, with the error `why`. Thread-safe. Does not block.
  void Abort(std::vector<std::shared_ptr<collective::Communicator>> communicators,
             const absl::Status& why);

  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // Shared with the thread.
};

}  // namespace muster
