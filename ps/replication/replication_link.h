// A connection from the primary of a shard to the shard's backup (see replication.h). The primary
// sends frames without waiting for replies, and the backup receives them in order. Several small
// frames are sent with one system call.
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

// Thread-safe after Open has returned OK. The first error ends the link: all waiting and later
// calls return this error. As an exception, Await returns OK for a frame that the backup has
// already acknowledged.
class ReplicaLink {
 public:
  ReplicaLink(std::unique_ptr<transport::DataConnection> connection,
              const ReplicationOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Sends kOpen and waits for kWelcome. Sets `*versions` to the versions that the backup has,
  // indexed by chunk.
  absl::Status Open(MonotonicTime deadline, std::vector<ShardStore::ChunkVersion>* versions);

  // Sends a frame. Returns the number of the frame on this link, counted from 1. A small frame may
  // stay in a buffer until a later Send or Await. Returns DeadlinePassed if the connection accepts
  // no byte for `limit`.
  using Payload = std::array<std::span<const std::byte>, 3>;
  absl::StatusOr<uint64_t> Send(ReplicaKind kind, ReplicaFrame frame, const Payload& payload,
                                Duration limit);
  // Blocks until the backup has acknowledged the frame `number` and all frames before it.
  absl::Status Await(uint64_t number);
  // Returns the number of the newest frame, or 0 if there is none.
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
  // Waits until data can be read. If `write` is true, also returns as soon as data can be written.
  // At the time `since` + `limit`, and when the view ends, ends the link with an error. Releases
  // the lock while it waits, so other threads may advance `since`.
  void WaitLocked(bool write, Duration limit, const MonotonicTime& since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<transport::DataConnection> connection_;
  const ReplicationOptions& options_;

  mutable absl::Mutex mu_;  // Held for each read and write, but not while a thread waits.
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // True while a thread writes frames.
  // True while a thread waits for acknowledgements, on behalf of all threads in Await.
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  // outbox_ has frames to send. leaving_ has the frames that a thread is sending.
  std::vector<std::byte> outbox_ ABSL_GUARDED_BY(mu_), leaving_ ABSL_GUARDED_BY(mu_);
  // sent_ counts the frames that were passed to Send. taken_ counts the frames that the backup has
  // acknowledged.
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0, taken_ ABSL_GUARDED_BY(mu_) = 0;
  // written_ is the time of this side's last write, or the beginning of a write that has sent no
  // data yet. answered_ is the time of the last acknowledgement. If answered_ is before written_, a
  // thread that begins to wait for acknowledgements sets answered_ to written_.
  MonotonicTime written_ ABSL_GUARDED_BY(mu_) = {}, answered_ ABSL_GUARDED_BY(mu_) = {};
  std::array<std::byte, 8192> inbox_ ABSL_GUARDED_BY(mu_);
  size_t have_ ABSL_GUARDED_BY(mu_) = 0;  // The number of bytes in inbox_.
};

// Opens links to the backup. Each link has a higher channel number (Hello::channel) than all
// earlier links, so the backup can tell which link is newer. `options` must outlive this object and
// its links.
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
