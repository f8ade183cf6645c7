// A ShardChannel makes a worker's transfers with one shard, the part of all variables that one
// parameter server holds. The channel's thread keeps one connection to the shard's primary server.
// A view assigns shards to servers (client.h). After a lost connection or a new view, the thread
// connects again and repeats the transfers without an answer. PushPullClient launches the
// transfers. Internal to PushPullClient. A shard has ParameterServerOptions::connections channels.
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
#include "common/rpc/retry.h"

namespace muster::push_pull {

class ShardChannel {
 public:
  struct Options {
    const ClientOptions* client = nullptr;
    int shard = 0;
    int connection = 0;  // The index among the shard's channels.
    // The memory of the shard's gradients, which a server on the worker's host can open. Null: the
    // gradients are in ordinary memory.
    const transport::SharedMemory* gradients = nullptr;
    ViewCache* views = nullptr;
    // The channel's thread calls the following functions.
    //
    // Receives answers. `view` is the number of the view of the connection. After the answer to a
    // transfer, the channel no longer uses the transfer's memory.
    std::function<void(std::span<const ChunkAnswer>, uint64_t view)> answered;
    // Called if the shard was restored to an older state. The state may lack pushes that were
    // answered in views up to `view` (ClientView::Primary::restored). Returns the current push's
    // transfers that were answered in these views. The channel then resends these transfers.
    std::function<std::vector<Transfer>(uint64_t view)> reopen;
    // Called when a connection is lost and its unanswered transfers will be repeated.
    std::function<void()> resumed;
    std::function<void(absl::Status)> failed;  // Called with an error that retries cannot fix.
    std::function<void()> ended;               // Called last, when the thread ends.
  };
  explicit ShardChannel(Options options);
  ~ShardChannel();  // Stops the thread and joins it.

  // The following methods are thread-safe and do not block.
  //
  // Queues transfers.
  void Launch(std::span<const Transfer> transfers);
  // Makes the thread look for a new view.
  void Wake();
  // Makes the thread end soon.
  void Stop();

 private:
  void Run();
  void Round();
  bool TakeLaunched();
  bool SendAgain(const ClientView& view);
  absl::Status Connect(const std::shared_ptr<const ClientView>& next);
  absl::StatusOr<std::unique_ptr<transport::DataConnection>> Dial(const ClientView& view);
  std::vector<transport::SharedMemory::ByteRange> MemoryRanges() const;
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
  std::unique_ptr<ShardConnection> link_;  // The connection to the primary in view_. May be null.
  std::vector<ChunkAnswer> answers_;
  // True if the thread has logged the kind of connection to the shard: shared memory or TCP.
  bool logged_ = false;
  // True if the thread has logged a lost connection since the last answer.
  bool warned_ = false;
  // The number of the channel's newest connection. Each new connection gets a higher number (modulo
  // 2^32). No two connections of this process to a shard have the same number.
  uint32_t connection_number_ = 0;
  rpc::Backoff backoff_;  // The delays between connections. Starts again with each answer.
  const std::shared_ptr<SpanRecorder> spans_ = SpanThread::Recorder();
  std::thread thread_;
};

}  // namespace muster::push_pull
