// A primary's connection to the backup of its shard. The primary sends frames without waiting for
// replies, and the backup receives them in order. Several small frames are sent together.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "ps/replication/replication.h"
#include "ps/replication/replication_wire.h"

namespace muster::ps {

// Thread-safe after Open. The first error of any call ends the link: it wakes all waiting calls,
// and all later calls return it.
class ReplicaLink {
 public:
  ReplicaLink(std::unique_ptr<transport::DataConnection> connection,
              const ReplicationOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Sends kOpen and waits for kWelcome. Sets `versions` to what the backup holds, by chunk.
  absl::Status Open(MonotonicTime deadline, std::vector<ShardStore::ChunkVersion>* versions);

  // Sends a frame and returns its number on this link, from 1. A small frame may stay in a buffer
  // until a later Send or Await. Returns DeadlinePassed if no byte is sent for `limit`.
  using Payload = std::array<std::span<const std::byte>, 3>;
  absl::StatusOr<uint64_t> Send(ReplicaKind kind, ReplicaFrame frame, const Payload& payload,
                                Duration limit);
  // Blocks until the backup has received the frame `number` and all frames before it.
  absl::Status Await(uint64_t number);
  // Returns the number of the newest frame.
  uint64_t sent() const {
    absl::MutexLock lock(&mu_);
    return sent_;
  }
  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return error_;
  }

 private:
  absl::Status ExchangeAll(std::span<const std::byte> send, std::span<std::byte> receive,
                           MonotonicTime deadline) {
    return connection_->Exchange(send, receive, deadline, *options_.abort);
  }
  absl::Status WaitForTurnLocked(Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteLocked(const Payload& rest, Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakeFrameLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until the connection can be read, or written if `write`. Fails the link if nothing
  // happens until `since` + `limit`. Releases the lock meanwhile, and other threads may advance
  // `since`.
  void WaitLocked(bool write, Duration limit, const MonotonicTime& since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<transport::DataConnection> connection_;
  const ReplicationOptions& options_;

  mutable absl::Mutex mu_;  // Held while reading and writing, but not while waiting for either.
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // A thread is in the middle of a frame.
  // A thread is waiting for replies, for itself and for the other threads in Await.
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  // Bytes of small frames to send, and the bytes that are being sent.
  std::vector<std::byte> outbox_ ABSL_GUARDED_BY(mu_), leaving_ ABSL_GUARDED_BY(mu_);
  // The numbers of frames sent by this side and acknowledged by the backup.
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0, taken_ ABSL_GUARDED_BY(mu_) = 0;
  // The times of the last write and the last acknowledgement.
  MonotonicTime written_ ABSL_GUARDED_BY(mu_) = {}, answered_ ABSL_GUARDED_BY(mu_) = {};
  std::array<std::byte, 8192> inbox_ ABSL_GUARDED_BY(mu_);
  size_t have_ ABSL_GUARDED_BY(mu_) = 0;  // Bytes in inbox_.
};

// Opens links to the backup. Each link has a higher channel number than the one before. The options
// must outlive this object and its links.
class ReplicaDialer {
 public:
  explicit ReplicaDialer(const ReplicationOptions& options) : options_(options) {}
  absl::StatusOr<std::shared_ptr<ReplicaLink>> Dial(
      MonotonicTime deadline, std::vector<ShardStore::ChunkVersion>* versions);

 private:
  const ReplicationOptions& options_;
  uint32_t channel_ = 0;
};

}  // namespace muster::ps
