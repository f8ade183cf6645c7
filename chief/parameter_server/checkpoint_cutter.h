// CheckpointCutter takes a cut: a consistent copy of all shards between two steps, for a checkpoint
// or for callbacks. While no lease is open, the servers copy their shards in memory. Training then
// continues, and a thread of this class reads the copies. Parameters go into the chief's replica.
// Slots and rows of embedding tables go piece by piece into the checkpoint's files.
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
  bool write = false;       // Write a checkpoint of the cut.
  bool must = false;        // Training may not end without this checkpoint.
  bool histograms = false;  // Report histograms of the parameters.
  bool for_callbacks = false;
  bool replaces = false;  // Becomes Snapshot::replaces.
  // The name of the callback whose weights the checkpoint has instead of the servers' weights, ""
  // if none.
  std::string put_back;
  push_pull::IntegerBuffers integers;  // The integer buffers' values at the time of the cut.
  std::vector<int> primaries;          // Indexed by shard.

  // ---- What the thread read
  absl::Status status;
  // The disk error that prevented the write of the files. The thread has still read everything.
  absl::Status unwritten;
  StateFiles files;                              // The files that the thread wrote.
  std::optional<checkpoint::Snapshot> snapshot;  // Its files are staged, not yet published.
};

class CheckpointCutter {
 public:
  // `layout`, `state`, `links` and `sink` must outlive this object. `sink` may be null. From Begin
  // to Take, only the thread of this class uses `state`. The thread calls `on_read` when it has
  // finished.
  CheckpointCutter(const push_pull::Layout& layout, ShardState* state, ServerLinks* links,
                   CheckpointSink* sink, std::function<void()> on_read);
  ~CheckpointCutter();

  enum class State { kIdle, kReading, kRead };
  State state() const;
  bool idle() const { return state() == State::kIdle; }

  // Asks the servers to copy their shards and starts to read the copies. Returns an error of
  // ShardClient if nothing was started. REQUIRES: idle(), no lease is open, all shards are served.
  absl::Status Begin(Cut cut);
  // Blocks until the thread has ended, and returns the cut. REQUIRES: not idle().
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
  Cut cut_;  // Used only by the thread while it reads.
  // The files of the tables, in the order of shards, and then the other files.
  std::vector<std::shared_ptr<checkpoint::StagedFile>> staged_;
  std::thread thread_;
  mutable absl::Mutex mu_;
  State now_ ABSL_GUARDED_BY(mu_) = State::kIdle;
};

}  // namespace muster::chief
