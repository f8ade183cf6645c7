// CheckpointCutter takes a cut: a consistent copy of the state of all servers (ps tasks) between
// two steps, for a checkpoint or for callbacks. A shard is the part of the state that one server
// holds. While no worker computes a batch, CheckpointCutter makes all servers freeze their shards.
// Training then continues, while a thread of CheckpointCutter reads the frozen shards. (A server
// copies a frozen value just before it updates the value.) The thread stores parameters in the
// chief's replica of the model. For a checkpoint, the thread writes optimizer slots and rows of
// embedding tables to files, piece by piece. For callbacks, the thread also writes the slots to a
// file, because callbacks may save the slots.
//
//  kIdle -- Begin --> kReading -- the thread has ended --> kRead -- Take --> kIdle
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/shards/server_links.h"

namespace muster::chief {

struct Cut {
  // ---- The request
  checkpoint::TrainingState state;
  bool write = false;          // True: write a checkpoint of the cut.
  bool must = false;           // True: the job fails if the cut cannot be read or written.
  bool histograms = false;     // True: report histograms of the parameters.
  bool for_callbacks = false;  // True if callbacks need the weights.
  bool replaces = false;       // Becomes Snapshot::replaces.
  // A callback may have kept weights that the checkpoint must contain in place of the servers'
  // weights. `put_back` is the name of this callback, "" if there is none.
  std::string put_back;
  push_pull::IntegerBuffers integers;  // The integer buffers' values at the time of the cut.
  std::vector<int> primaries;          // The task that serves each shard, indexed by shard.

  // ---- The result
  absl::Status status;  // The error if reading from servers failed.
  // The error if writing the files failed. The thread then still reads all shards.
  absl::Status unwritten;
  StateFiles files;  // The files that the thread wrote.
  // Set if `write` is true and there was no error. The files of the snapshot are written, but the
  // checkpoint is not published yet.
  std::optional<checkpoint::Snapshot> snapshot;
};

class CheckpointCutter {
 public:
  // `layout`, `state`, `links` and `sink` must outlive this object. `sink` is null if the job
  // writes no checkpoints. Between Begin and Take, only the thread of CheckpointCutter may use
  // the weights in `state`. The thread calls `on_read` when it has finished.
  CheckpointCutter(const push_pull::Layout& layout, ShardState* state, ServerLinks* links,
                   CheckpointSink* sink, std::function<void()> on_read);
  ~CheckpointCutter();

  enum class State { kIdle, kReading, kRead };
  State state() const;
  bool idle() const { return state() == State::kIdle; }

  // Makes the servers freeze their shards, and starts the thread that reads them. Blocks until the
  // shards are frozen. Returns an error if a server did not freeze its shard. The thread is then
  // not started. REQUIRES: idle(), no lease (batch of a worker) is open, each shard is served.
  absl::Status Begin(Cut cut);
  // Blocks until the thread has ended, and returns the cut with its result. REQUIRES: not idle().
  Cut Take();

 private:
  void Drop(const std::vector<int>& primaries, const std::string& name);
  absl::Status Copy(const std::vector<int>& primaries, const std::string& name);
  void Run();
  absl::Status ReadAll();
  absl::Status ReadShard(int shard, const std::string& name, SlotsFile* slots);
  absl::Status ReadRows(int shard, const std::string& name);
  absl::Status FinishRows(int shard);
  void Unwritten(const absl::Status& status);
  absl::StatusOr<std::unique_ptr<SlotsFile>> StageSlots();
  absl::Status FinishSlots(SlotsFile* slots);
  absl::Status WriteSets();

  const push_pull::Layout& layout_;
  ShardState* const state_;
  ServerLinks* const links_;
  CheckpointSink* const sink_;
  const bool has_tables_;
  const std::function<void()> on_read_;
  Cut cut_;  // In state kReading, only thread_ uses the cut.
  // The files of the tables, in the order of shards, and then the other files.
  std::vector<std::shared_ptr<checkpoint::StagedFile>> staged_;
  std::thread thread_;
  mutable absl::Mutex mu_;
  State now_ ABSL_GUARDED_BY(mu_) = State::kIdle;
};

}  // namespace muster::chief
