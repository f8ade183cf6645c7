// A primary's connection to the backup of its shard. Frames leave one behind the other, without
// waiting for answers, and are taken in that order; small ones leave together.
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
#include "ps/replication.h"
#include "ps/replication_wire.h"

namespace muster::ps {

// Any thread, once it is open. The first error, of whichever call, is the end of it: all that come
// later return it, and whoever waits wakes.
class ReplicaLink {
 public:
  ReplicaLink(std::unique_ptr<transport::DataConnection> connection,
              const ReplicationOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Says what this connection is for; the answer tells what the backup holds.
  absl::Status Open(MonotonicTime deadline, std::vector<DenseStore::Standing>* standings);

  // The frame's number on this link, from 1. Returns when it has left, or, where it is small, may
  // leave with a later one, or with Await. DeadlinePassed when nothing moves for `limit`.
  using Payload = std::array<std::span<const std::byte>, 3>;
  absl::StatusOr<uint64_t> Send(ReplicaKind kind, ReplicaFrame frame, const Payload& payload,
                                Duration limit);
  // Returns when the backup has taken that frame, and all before it.
  absl::Status Await(uint64_t number);
  // The newest frame's number.
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
  // Until there is something to read (or room to write), or `limit` after `since`, which others
  // move. Releases the lock meanwhile.
  void WaitLocked(bool write, Duration limit, const MonotonicTime& since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<transport::DataConnection> connection_;
  const ReplicationOptions& options_;

  mutable absl::Mutex mu_;  // of all reads and writes, but not of waiting for them
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // somebody is in the middle of a frame
  bool reading_ ABSL_GUARDED_BY(mu_) = false;  // somebody waits for answers, for all who do
  std::vector<std::byte> outbox_ ABSL_GUARDED_BY(mu_), leaving_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0, taken_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicTime written_ ABSL_GUARDED_BY(mu_) = {}, answered_ ABSL_GUARDED_BY(mu_) = {};  // last
  std::array<std::byte, 8192> inbox_ ABSL_GUARDED_BY(mu_);
  size_t have_ ABSL_GUARDED_BY(mu_) = 0;  // of inbox_
};

// Opens them, each with a channel of its own, which rise. The options outlive it and its links.
class ReplicaDialer {
 public:
  explicit ReplicaDialer(const ReplicationOptions& options) : options_(options) {}
  absl::StatusOr<std::shared_ptr<ReplicaLink>> Dial(MonotonicTime deadline,
                                                    std::vector<DenseStore::Standing>* standings);

 private:
  const ReplicationOptions& options_;
  uint32_t channel_ = 0;
};

}  // namespace muster::ps
