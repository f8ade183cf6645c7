// A primary's connection to the backup of its shard. Frames are sent without waiting for replies
// and are received in order. Small frames are sent together.
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

// Thread-safe once it is open. The first error of any call ends the link: later calls return it,
// and all waiting calls wake.
class ReplicaLink {
 public:
  ReplicaLink(std::unique_ptr<transport::DataConnection> connection,
              const ReplicationOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Introduces the connection. The reply has what the backup holds.
  absl::Status Open(MonotonicTime deadline, std::vector<ShardStore::Standing>* standings);

  // Sends a frame and returns its number on this link, from 1. A small frame may leave later, with
  // another one or with Await. Returns DeadlinePassed if nothing moves for `limit`.
  using Payload = std::array<std::span<const std::byte>, 3>;
  absl::StatusOr<uint64_t> Send(ReplicaKind kind, ReplicaFrame frame, const Payload& payload,
                                Duration limit);
  // Blocks until the backup has received that frame and all before it.
  absl::Status Await(uint64_t number);
  // The number of the newest frame.
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
  absl::Status TurnLocked(Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteLocked(const Payload& rest, Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakeFrameLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until there is something to read (or room to write), or until `limit` after `since`,
  // which other threads advance. Releases the lock meanwhile.
  void WaitLocked(bool write, Duration limit, const MonotonicTime& since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<transport::DataConnection> connection_;
  const ReplicationOptions& options_;

  mutable absl::Mutex mu_;  // Held for all reads and writes, but not while waiting for them.
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // A thread is in the middle of a frame.
  // One thread waits for replies, on behalf of all waiting threads.
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::byte> outbox_ ABSL_GUARDED_BY(mu_), leaving_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0, taken_ ABSL_GUARDED_BY(mu_) = 0;
  // Times of the last ones.
  MonotonicTime written_ ABSL_GUARDED_BY(mu_) = {}, answered_ ABSL_GUARDED_BY(mu_) = {};
  std::array<std::byte, 8192> inbox_ ABSL_GUARDED_BY(mu_);
  size_t have_ ABSL_GUARDED_BY(mu_) = 0;  // Bytes in inbox_.
};

// Opens links, each with its own channel number, which increases. The options outlive this object
// and its links.
class ReplicaDialer {
 public:
  explicit ReplicaDialer(const ReplicationOptions& options) : options_(options) {}
  absl::StatusOr<std::shared_ptr<ReplicaLink>> Dial(MonotonicTime deadline,
                                                    std::vector<ShardStore::Standing>* standings);

 private:
  const ReplicationOptions& options_;
  uint32_t channel_ = 0;
};

}  // namespace muster::ps
