// A checkpoint of a parameter-server job as a cut: the servers copy their shards in memory while no
// lease is out, training goes on, and a thread reads the copies: parameters into the chief's
// replica, slots and rows of embedding tables piece by piece into the checkpoint's files.
//
// kIdle -- Begin --> kReading -- the thread has ended --> kRead -- Take --> kIdle
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/server_links.h"
#include "chief/shard_state.h"

namespace muster {

struct Cut {
  // ---- What is asked for
  checkpoint::TrainingState state;
  bool write = false;       // a checkpoint is made of it
  bool must = false;        // training does not end without it
  bool histograms = false;  // of the parameters are wanted
  bool for_callbacks = false;
  bool replaces = false;       // Snapshot::replaces
  std::string put_back;        // a callback's weights in the place of the servers'; "": none
  IntegerBuffers integers;     // as they were at the cut
  std::vector<int> primaries;  // by shard

  // ---- What the thread read
  absl::Status status;
  absl::Status unwritten;  // why the files are not: the disk's error. All was read nevertheless
  StateFiles files;        // those that were written
  std::optional<checkpoint::Snapshot> snapshot;  // its files are staged
};

class CheckpointCutter {
 public:
  // `layout`, `state`, `links` and `sink` outlive this object; `sink` may be null. The thread uses
  // `state` alone until Take. `on_read` is called on it when it is through.
  CheckpointCutter(const Layout& layout, ShardState* state, ServerLinks* links,
                   CheckpointSink* sink, std::function<void()> on_read);
  ~CheckpointCutter();

  enum class State { kIdle, kReading, kRead };
  State state() const;
  bool idle() const { return state() == State::kIdle; }

  // REQUIRES: idle(), no lease is out, all shards are served. Has the servers copy their shards,
  // and begins to read. An error of ShardClient's: nothing is under way.
  absl::Status Begin(Cut cut);
  // REQUIRES: not idle. Waits for the thread.
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

  const Layout& layout_;
  ShardState* const state_;
  ServerLinks* const links_;
  CheckpointSink* const sink_;
  const bool has_tables_;
  const std::function<void()> on_read_;
  Cut cut_;                                                      // the thread's while it reads
  std::vector<std::shared_ptr<checkpoint::StagedFile>> staged_;  // tables' by shard, then the rest
  std::thread thread_;
  mutable absl::Mutex mu_;
  State now_ ABSL_GUARDED_BY(mu_) = State::kIdle;
};

}  // namespace muster
