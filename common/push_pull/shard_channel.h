// A worker's transfers with one shard, or with its part of the shard's chunks: a thread that keeps
// a connection to the shard's primary, through lost connections and new views, until all chunks
// that were launched are answered. Internal to the client.
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

class ShardChannel {
 public:
  struct Options {
    const ClientOptions* client = nullptr;
    int shard = 0;
    int connection = 0;  // which of the shard's
    // The shard's gradients, where they can be offered to a server of this host.
    const transport::SharedMemory* gradients = nullptr;
    ViewKeeper* views = nullptr;
    // On the channel's thread. After the last one nothing is read or written any more.
    std::function<void(std::span<const ChunkAnswer>, uint64_t view)> answered;
    // Pushes that were answered in views up to this one, and have to be sent again.
    std::function<std::vector<Transfer>(uint64_t view)> reopen;
    std::function<void()> resumed;             // transfers are sent a second time
    std::function<void(absl::Status)> failed;  // nothing will help
    std::function<void()> ended;
  };
  explicit ShardChannel(Options options);
  ~ShardChannel();  // Stops.

  // Any thread, at any time.
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
  std::vector<ShardConnection::Pieces> pieces_;  // of the parameters, by chunk
  const Fd wake_;
  std::atomic<bool> stopping_{false};

  absl::Mutex mutex_;
  std::vector<Transfer> launched_ ABSL_GUARDED_BY(mutex_);

  // The thread's own.
  std::deque<Transfer> todo_;  // for the next connection
  std::shared_ptr<const ClientView> view_;
  std::unique_ptr<ShardConnection> link_;  // of view_
  std::vector<ChunkAnswer> answers_;
  bool logged_ = false;   // how the shard is reached
  bool warned_ = false;   // ... that it cannot be, since the last answer
  uint32_t channel_ = 0;  // the last connection's; those of a shard have different ones
  Duration backoff_{};
  std::thread thread_;
};

}  // namespace muster::ps
