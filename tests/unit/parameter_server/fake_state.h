// A ShardState without LibTorch, for tests of the Director. Each variable is one number, which all
// of its elements have.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/parameter_server/shard_state.h"

namespace muster::chief::testing {

// The callbacks of a fake job. There is one, named "one".
struct FakeCallbacks {
  // Called for each hook, on the director's thread. May change the decision. May be null.
  std::function<void(Hook hook, const CallbackMoment& moment, CallbackDecision* decision)> on_hook;
  std::function<void()> on_begin;  // Called when training begins or continues. May be null.
  int64_t Count(Hook hook) const;
  mutable absl::Mutex mu;
  std::vector<std::pair<Hook, CallbackMoment>> fired ABSL_GUARDED_BY(mu);
};

// Makes states with this many variables. With as many variables as servers, each server has one
// shard with content.
ShardStateFactory FakeStates(int variables, std::shared_ptr<FakeCallbacks> callbacks = {});
// Returns the value of each shard in a snapshot of a fake state.
std::vector<double> ValuesOf(const checkpoint::Snapshot& snapshot);
// Returns the snapshot's integer buffer "net.count", in eight digits. Each fake worker counts its
// batches in this buffer.
std::string CountOf(const checkpoint::Snapshot& snapshot);

// Return the content of a chunk whose elements are all `value`, and this value.
std::string ValueBytes(double value);
double ValueOf(const std::string& bytes);

}  // namespace muster::chief::testing
