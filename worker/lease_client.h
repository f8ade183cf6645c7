// A worker's end of proto::Leases: asks the chief for work ahead of time, has the examples of each
// lease loaded while the one before is computed, and tells what was done. A chief that does not
// answer is asked again: its successor is told what this worker holds, and what it completed of
// late.
//
// One thread of its own asks and loads. All methods may be called from any thread, Take and
// Complete by one at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

struct LeaseClientOptions {
  std::string chief_address;
  rpc::ChannelOptions channel;
  int worker = 0;
  uint64_t incarnation = 0;
  std::string digest;  // with the variables, compared with the chief's
  std::vector<VariableSpec> variables;
  int ahead = 1;  // leases asked for beyond the one that is worked on
  // Of a chief that does not answer: then the worker gives up.
  Duration patience = std::chrono::minutes(10);
  // Loads the examples of a lease, on this object's thread.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const proto::Lease& lease)> load;
};

struct LeasedWork {
  std::optional<proto::Lease> lease;  // none: there is none yet, or
  bool done = false;                  // no more will come
  std::shared_ptr<void> examples;     // as `load` made them
  MonotonicTime loaded;
  // When it was known that it may start: parameters that were pulled before are too old for it.
  // Only of training.
  MonotonicTime may_start;
};

class LeaseClient {
 public:
  static absl::StatusOr<std::unique_ptr<LeaseClient>> Make(LeaseClientOptions options);
  virtual ~LeaseClient() = default;

  // Blocks until there is work that may start, or none will come, or the chief says that there is
  // none yet, which it does every second: a wait for others, not for this worker's input. Errors:
  // of loading; the chief refuses this worker; it did not answer for `patience`; what Stop was
  // given.
  virtual absl::StatusOr<LeasedWork> Take() = 0;
  // The chief hears of it at once, or with the next question.
  virtual void Complete(proto::BatchDone done) = 0;
  virtual void Complete(proto::EvaluationDone done) = 0;
  // Integer buffers that a batch changed, as they are after push `sequence`: the chief hears of
  // them with what is completed next. Before Complete.
  virtual void TellIntegers(const IntegerBuffers& changed, uint64_t sequence) = 0;
  // Those that this process is to begin with, as the first chief that knew it told: once, then
  // none.
  virtual IntegerBuffers TakeIntegers() = 0;
  // All leases, the one that is worked on too, are void.
  virtual void Forget() = 0;

  // The newest view above `newer_than` in which each shard has a primary. Blocks, `patience` at the
  // most without an answer. Superseded, and `*abandon` true: what is under way is void.
  virtual absl::StatusOr<proto::View> NextView(uint64_t newer_than, bool* abandon) = 0;

  // The job is done, whether or not the chief still says so here: Take tells DONE, and no view will
  // come any more.
  virtual void Finish() = 0;
  // Wakes whoever waits: everything ends with `why`.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster
