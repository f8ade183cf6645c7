// A ShardChannel is one of a worker's channels to a shard. PushPullClient launches transfers on it.
// The channel's thread connects to the shard's primary. After a lost connection or a new view, the
// thread connects again, until all launched transfers are answered. Internal to the client.
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
#include "common/flight/spans.h"
#include "common/push_pull/client.h"
#include "common/push_pull/shard_connection.h"
#include "common/push_pull/view_cache.h"

namespace muster::push_pull {

class ShardChannel {
 public:
  struct Options {
    const ClientOptions* client = nullptr;
    int shard = 0;
    int connection = 0;  // The index among the shard's connections.
    // The shard's gradients. Null if they are not in memory that a server on this host can share.
    const transport::SharedMemory* gradients = nullptr;
    ViewCache* views = nullptr;
    // Receives answers. Called on the channel's thread. Once all transfers are answered, the
    // channel does not access their memory.
    std::function<void(std::span<const ChunkAnswer>, uint64_t view)> answered;
    // Returns the pushes that were answered in views up to `view` and must be sent again.
    std::function<std::vector<Transfer>(uint64_t view)> reopen;
    std::function<void()> resumed;             // Called when transfers are sent a second time.
    std::function<void(absl::Status)> failed;  // Called with a permanent error.
    std::function<void()> ended;
  };
  explicit ShardChannel(Options options);
  ~ShardChannel();  // Stops.

  // Thread-safe.
  void Launch(std::span<const Transfer> transfers);
  void Wake();
  void Stop();  // Does not wait.

 private:
  void Run();
  void Round();
  bool TakeLaunched();
  bool SendAgain(const ClientView& view);
  absl::Status Connect(const std::shared_ptr<const ClientView>& next);
  absl::StatusOr<std::unique_ptr<transport::DataConnection>> Dial(const ClientView& view);
  std::vector<transport::SharedMemory::Part> MemoryParts() const;
  absl::Status Pump();
  void Drop(const absl::Status& why);
  void Fail(const absl::Status& why);
  bool SleepUnwoken(std::span<pollfd> polled, std::optional<Duration> limit);
  bool Sleep(std::optional<Duration> limit);
  uint64_t view_number() const { return view_ == nullptr ? 0 : view_->number; }
  std::string Server() const;

  const Options options_;
  // The destination of the parameters of each chunk.
  std::vector<ShardConnection::Pieces> pieces_;
  const Fd wake_;
  std::atomic<bool> stopping_{false};

  absl::Mutex mutex_;
  std::vector<Transfer> launched_ ABSL_GUARDED_BY(mutex_);

  // Used only by the channel's thread.
  std::deque<Transfer> todo_;  // Transfers for the next connection.
  std::shared_ptr<const ClientView> view_;
  std::unique_ptr<ShardConnection> link_;  // The connection in view_.
  std::vector<ChunkAnswer> answers_;
  // True once a log line has said how this worker reaches the shard.
  bool logged_ = false;
  // True if a log line since the last answer has said that the shard is unreachable.
  bool warned_ = false;
  // The number of the last connection. No two connections to a shard have the same number.
  uint32_t channel_ = 0;
  Duration backoff_{};
  const std::shared_ptr<SpanRecorder> spans_ = SpanThread::Recorder();
  std::thread thread_;
};

}  // namespace muster::push_pull
