// A worker's work with one shard, or with its part of the shard's chunks: a thread that keeps a
// connection to whoever is the shard's primary, through lost connections and new views, until all
// chunks that were launched are answered.
// Internal to the client.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/client.h"
#include "common/push_pull/shard_connection.h"
#include "common/push_pull/view_keeper.h"

namespace muster::ps {

// What is done with each chunk until it is done.
struct Errand {
  bool push = false;           // besides pulling
  PushPullClient::Push which;  // of a push
  uint64_t number = 0;         // of the client's errands
};

class Lane {
 public:
  struct Options {
    const ClientOptions* client = nullptr;
    int shard = 0;
    int connection = 0;          // which of the shard's
    std::span<float> gradients;  // of the shard
    // The same, where it can be offered to a server of this host.
    const transport::SharedMemory* shared_gradients = nullptr;
    ViewKeeper* views = nullptr;
    // On the lane's thread. After the last one nothing is read or written any more.
    std::function<void(const ChunkAnswer&, uint64_t view)> answered;
    // What was answered in views up to this one has to be done again. False: the errand is over.
    std::function<bool(uint64_t errand, uint64_t view)> reopen;
    std::function<void()> resumed;             // chunks are sent a second time
    std::function<void(absl::Status)> failed;  // nothing will help
    std::function<void()> ended;
  };
  explicit Lane(Options options);
  ~Lane();  // Stops.

  // For the chunks that follow. REQUIRES: all before are answered.
  void Begin(const Errand& errand);
  void Launch(int chunk, PushPullClient::What what);
  // About rows: of a push, sequence and the like are filled in, and `pulled` is RowPull::others.
  // Pulls of rows need no Begin, and may be launched by any thread at any time.
  void Launch(std::span<const ChunkRequest> requests);
  void Wake();
  void Stop();  // Does not wait.

 private:
  void Run();
  void Round();
  bool TakeLaunched();
  bool SendAgain(const ClientView& view);
  absl::Status Connect(const std::shared_ptr<const ClientView>& view);
  absl::StatusOr<std::unique_ptr<transport::DataConnection>> Dial(const ClientView& view);
  void Open(std::unique_ptr<transport::DataConnection> connection, const ClientView& view);
  absl::Status Pump();
  void Took(ChunkAnswer answer);
  void Drop(const absl::Status& why);
  void Failed(const absl::Status& why);
  ChunkRequest RequestFor(int chunk, PushPullClient::What what, const Errand& errand) const;
  void FillIn(const Errand& errand, ChunkRequest* request) const;
  bool Sleep(std::optional<Duration> limit);
  // Among all of the client's, for ViewKeeper.
  int id() const;
  uint64_t number() const { return view_ == nullptr ? 0 : view_->number; }
  std::string Server() const;

  const Options options_;
  const std::vector<Chunk>& chunks_;
  std::vector<std::vector<std::span<float>>> pieces_;  // of the parameters, by chunk
  const Fd wake_;
  std::atomic<bool> stopping_{false};

  absl::Mutex mutex_;
  Errand errand_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<int, PushPullClient::What>> launched_ ABSL_GUARDED_BY(mutex_);
  std::vector<ChunkRequest> rows_ ABSL_GUARDED_BY(mutex_);  // likewise

  // The thread's own.
  std::vector<int64_t> updates_;   // by chunk, as the last pull told them; not of rows
  std::vector<int64_t> pushed_;    // by chunk: own pushes of rows that are answered, hence in it
  std::deque<ChunkRequest> todo_;  // for the next connection
  uint64_t doing_ = 0;             // the errand of what was launched last
  bool keeps_ = false;             // ... what is answered of it, in had_
  // Of a push: what was answered, and in which view.
  std::vector<std::pair<uint64_t, ChunkRequest>> had_;
  uint64_t looked_at_ = 0;  // the newest view
  std::shared_ptr<const ClientView> view_;
  std::unique_ptr<ShardConnection> link_;  // of view_
  std::vector<ChunkAnswer> answers_;
  bool told_ = false;     // the log has a line about how the shard is reached
  bool warned_ = false;   // ... that it cannot be, since the last answer
  uint32_t channel_ = 0;  // the last connection's; those of a shard have different ones
  Duration backoff_{};
  std::thread thread_;
};

}  // namespace muster::ps
