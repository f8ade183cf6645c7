// One parameter server's dense variables: parameters, slots, and what is known of their updates, in
// chunks. Bytes and threads are the caller's; this is the state and its rules.
//
// Updates of a chunk are applied one at a time, in the order in which they come; chunks know
// nothing of each other. A worker's pushes are numbered from 1; each chunk applies a number once,
// however often it is sent, so a push that was cut off is resumed at the first chunk that has not
// got it.
//
// All methods may be called from any thread. Until every chunk was filled or restored, nothing is
// served: a server that was started again must not pass its emptiness off as state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/push.h"
#include "common/train/optimizer_spec.h"

namespace muster {

// What a chunk holds. Copied as a whole, for checkpoints and backups.
struct ChunkState {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;  // of ShapedSlots(rule); each as long
  int64_t updates = 0;                    // applied so far: the rule's step
  struct Last {
    uint64_t incarnation = 0, sequence = 0;
    friend bool operator==(const Last&, const Last&) = default;
  };
  std::map<int, Last> last;  // by worker: the newest push that is in it
  friend bool operator==(const ChunkState&, const ChunkState&) = default;
};

class DenseStore {
 public:
  struct Options {
    std::vector<Chunk> chunks;    // of this server
    std::vector<RuleSpec> rules;  // by optimizer
  };
  static std::unique_ptr<DenseStore> Make(Options options);
  virtual ~DenseStore() = default;

  // ---- Beginning. ConfigurationErrors name the chunk and what does not fit.
  // The program's own start: slots as the rule begins, no updates.
  virtual absl::Status Fill(int chunk, std::span<const float> parameters) = 0;
  virtual absl::Status Restore(int chunk, ChunkState state) = 0;
  // Every chunk holds something.
  virtual bool serving() const = 0;
  virtual absl::StatusOr<ChunkState> Copy(int chunk) const = 0;

  // ---- Workers.
  // From now on `worker` is this process: pushes of any other one are refused as Superseded.
  virtual void Admit(int worker, uint64_t incarnation) = 0;
  // It is lost: its pushes are refused. True: its last push is in some chunks of this server and
  // not in others; a torn one, which stays as it is.
  virtual bool Expel(int worker) = 0;

  struct Push {
    PushKey key;
    int64_t pulled = 0;  // the chunk's `updates` as that pull told it
    double learning_rate = 0;
    std::span<const float> gradient;
    // Above 0: one of as many shares of the global batch `key.sequence`, whoever brings it. The sum
    // of all, in their order, is applied once, when the last one has come; `out` is left alone.
    int share = 0, shares = 0;
  };
  // Applies it, and copies the parameters as they are then to `out` unless that is empty: a pull
  // contains all own earlier pushes.
  virtual absl::StatusOr<Pushed> Apply(int chunk, const Push& push, std::span<float> out) = 0;
  // Copies the parameters; returns the chunk's `updates`.
  virtual absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const = 0;
};

}  // namespace muster
