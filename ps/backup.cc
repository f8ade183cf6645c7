#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/crc32c.h"
#include "common/base/wait.h"
#include "common/push_pull/wire.h"
#include "common/transport/wait.h"
#include "ps/replication.h"
#include "ps/replication_wire.h"

namespace muster::ps {
namespace {

using transport::DataConnection;
using transport::FrameHeader;

// More than any chunk's state, or piece of it: what a frame may make this process allocate.
constexpr uint64_t kMaxPayloadBytes = 4ull << 30;

struct Lane {
  absl::Mutex mu;
  CondVar changed;
  uint32_t handover ABSL_GUARDED_BY(mu) = 0;   // of the state that is here
  uint32_t coming ABSL_GUARDED_BY(mu) = 0;     // of the one whose first rows are here
  MonotonicTime progress ABSL_GUARDED_BY(mu);  // when the last piece of it came
};

class BackupShardImpl final : public BackupShard {
 public:
  BackupShardImpl(std::shared_ptr<DenseStore> store, ReplicationOptions options)
      : store_(std::move(store)),
        options_(std::move(options)),
        lanes_(options_.chunks),
        in_sync_(options_.in_sync) {}

  absl::Status Serve(DataConnection& connection) override;
  bool in_sync() const override { return in_sync_; }
  void Close() override {
    closed_ = true;
    for (Lane& lane : lanes_) {
      absl::MutexLock lock(&lane.mu);
      lane.changed.SignalAll();
    }
  }

 private:
  absl::Status Receive(DataConnection& connection, std::span<std::byte> into) {
    return connection.Exchange({}, into, Clock::now() + options_.stall, *options_.abort);
  }
  absl::Status Send(DataConnection& connection, ReplicaKind kind, const ReplicaFrame& frame,
                    const std::string& payload);
  absl::Status TakeOpen(DataConnection& connection);
  // One frame. False: the primary has closed the connection.
  absl::StatusOr<bool> Next(DataConnection& connection, std::vector<char>& payload);
  absl::Status TakePayload(DataConnection& connection, const ReplicaFrame& frame,
                           std::vector<char>& payload);
  // False: stale.
  absl::StatusOr<bool> Take(ReplicaKind kind, const ReplicaFrame& frame,
                            std::span<const char> payload);
  absl::StatusOr<bool> Update(const ReplicaFrame& frame, std::span<const char> payload);
  absl::StatusOr<bool> State(const ReplicaFrame& frame, std::span<const char> payload);

  const std::shared_ptr<DenseStore> store_;
  const ReplicationOptions options_;
  std::vector<Lane> lanes_;
  std::atomic<bool> in_sync_;
  std::atomic<bool> closed_ = false;
};

absl::Status BackupShardImpl::Serve(DataConnection& connection) {
  std::vector<char> payload;
  absl::Status status = TakeOpen(connection);
  while (status.ok()) {
    const absl::StatusOr<bool> next = Next(connection, payload);
    status = next.status();
    if (next.ok() && !*next) return absl::OkStatus();
  }
  if (options_.abort->is_set()) return status;
  SendError(status, connection, *options_.abort);
  return status;
}

absl::Status BackupShardImpl::Send(DataConnection& connection, ReplicaKind kind,
                                   const ReplicaFrame& frame, const std::string& payload) {
  const FrameHeader header = EncodeReplica(kind, frame, payload.size());
  const MonotonicTime deadline = Clock::now() + options_.stall;
  MUSTER_RETURN_IF_ERROR(
      connection.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, *options_.abort));
  return connection.Exchange(std::as_bytes(std::span(payload)), {}, deadline, *options_.abort);
}

absl::Status BackupShardImpl::TakeOpen(DataConnection& connection) {
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(Receive(connection, std::as_writable_bytes(std::span(&header, 1))));
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  const auto& [kind, frame] = decoded;
  if (kind != ReplicaKind::kOpen || header.payload_bytes != 0)
    return ConfigurationError(
        fmt::format("a frame of kind {:#x} came first between two parameter servers", header.kind));
  if (frame.layout != options_.layout || frame.shard != static_cast<uint32_t>(options_.shard))
    return ConfigurationError(
        fmt::format("the primary has other variables, or divides them in another way, than the "
                    "backup of shard {}: give all tasks the same job",
                    options_.shard));
  std::vector<DenseStore::Standing> standings;
  for (int c = 0; c < options_.chunks && frame.standing; ++c)
    standings.push_back(store_->standing(c));
  return Send(connection, ReplicaKind::kWelcome, {}, EncodeStandings(standings));
}

absl::StatusOr<bool> BackupShardImpl::Next(DataConnection& connection, std::vector<char>& payload) {
  // Nothing may be said for long: the view ends the connection, by `abort`.
  transport::Interest said{&connection, true};
  if (transport::WaitReady({&said, 1}, MonotonicTime::max(), *options_.abort) !=
      transport::WaitResult::kReady)
    return Superseded("the view has changed");
  FrameHeader header;
  const absl::Status received = Receive(connection, std::as_writable_bytes(std::span(&header, 1)));
  if (absl::IsUnavailable(received)) return false;  // closed
  if (!received.ok()) return received;
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  const auto& [kind, frame] = decoded;
  if (header.payload_bytes > kMaxPayloadBytes)
    return PeerLost(
        fmt::format("a frame between two parameter servers has {} bytes", header.payload_bytes));
  payload.resize(header.payload_bytes);
  MUSTER_RETURN_IF_ERROR(TakePayload(connection, frame, payload));
  MUSTER_ASSIGN_OR_RETURN(const bool fresh, Take(kind, frame, payload));
  ReplicaFrame ack;
  ack.chunk = frame.chunk;
  ack.stale = !fresh;
  MUSTER_RETURN_IF_ERROR(Send(connection, ReplicaKind::kAck, ack, ""));
  return true;
}

absl::Status BackupShardImpl::TakePayload(DataConnection& connection, const ReplicaFrame& frame,
                                          std::vector<char>& payload) {
  MUSTER_RETURN_IF_ERROR(Receive(connection, std::as_writable_bytes(std::span(payload))));
  if (frame.checksum && Crc32c({payload.data(), payload.size()}) != frame.payload_crc)
    return PeerLost(
        fmt::format("what the primary sent of chunk {} was damaged on its way", frame.chunk));
  return absl::OkStatus();
}

absl::StatusOr<bool> BackupShardImpl::Take(ReplicaKind kind, const ReplicaFrame& frame,
                                           std::span<const char> payload) {
  if (kind == ReplicaKind::kSynced) {
    in_sync_ = true;
    return true;
  }
  if (frame.chunk >= lanes_.size())
    return ConfigurationError(
        fmt::format("there is no chunk {}: this shard has {}", frame.chunk, lanes_.size()));
  if (kind == ReplicaKind::kUpdate) return Update(frame, payload);
  if (kind == ReplicaKind::kState) return State(frame, payload);
  return ConfigurationError("a primary sent what only backups send");
}

absl::StatusOr<bool> BackupShardImpl::Update(const ReplicaFrame& frame,
                                             std::span<const char> payload) {
  UpdateHead head;
  if (payload.size() < sizeof head || (payload.size() - sizeof head) % sizeof(float) != 0)
    return PeerLost(fmt::format("an update came in {} bytes", payload.size()));
  std::memcpy(&head, payload.data(), sizeof head);
  DenseStore::Push push;
  push.key = {static_cast<int>(head.worker), head.incarnation, head.sequence};
  push.learning_rate = head.learning_rate;
  // The buffer and the head are aligned for floats.
  push.gradient = {reinterpret_cast<const float*>(payload.data() + sizeof head),
                   (payload.size() - sizeof head) / sizeof(float)};
  push.floor = (head.flags & 1) != 0;

  const int chunk = static_cast<int>(frame.chunk);
  Lane& lane = lanes_[chunk];
  const MonotonicTime begin = Clock::now();
  absl::MutexLock lock(&lane.mu);
  for (;;) {
    if (closed_) return Superseded("the view has changed");
    if (frame.handover < lane.handover) return false;
    const bool turn = store_->standing(chunk).updates >= head.number - 1;
    if (frame.handover == lane.handover && turn) break;
    const Duration left = std::max(begin, lane.progress) + options_.stall - Clock::now();
    if (left <= Duration::zero())
      return DeadlinePassed(
          fmt::format("update {} of chunk {} waited {:g} s for what comes before it", head.number,
                      chunk, Seconds(options_.stall)));
    lane.changed.WaitFor(&lane.mu, left);
  }
  MUSTER_RETURN_IF_ERROR(store_->Replay(chunk, push, head.number).status());
  lane.changed.SignalAll();
  return true;
}

absl::StatusOr<bool> BackupShardImpl::State(const ReplicaFrame& frame,
                                            std::span<const char> payload) {
  MUSTER_ASSIGN_OR_RETURN(ChunkState state, DecodeState(payload));
  Lane& lane = lanes_[frame.chunk];
  absl::MutexLock lock(&lane.mu);
  if (closed_) return Superseded("the view has changed");
  if (frame.handover <= lane.handover || frame.handover < lane.coming) return false;
  const Piece piece{.first = frame.handover != lane.coming, .last = !frame.more};
  lane.coming = frame.handover;
  lane.progress = Clock::now();
  MUSTER_RETURN_IF_ERROR(store_->Restore(static_cast<int>(frame.chunk), std::move(state), piece));
  if (frame.more) return true;
  lane.handover = frame.handover;
  lane.changed.SignalAll();
  return true;
}

}  // namespace

std::shared_ptr<BackupShard> BackupShard::Make(std::shared_ptr<DenseStore> store,
                                               ReplicationOptions options) {
  return std::make_shared<BackupShardImpl>(std::move(store), std::move(options));
}

}  // namespace muster::ps
