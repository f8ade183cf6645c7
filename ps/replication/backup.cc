#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/files/crc32c.h"
#include "common/push_pull/wire.h"
#include "common/transport/wait.h"
#include "ps/replication/replication.h"
#include "ps/replication/replication_wire.h"

namespace muster::ps {
namespace {

using transport::DataConnection;
using transport::FrameHeader;

// Limits of what a frame may make this process allocate. kMaxPayloadBytes exceeds every push.
// kMaxStateBytes exceeds the state of every chunk and every piece of it. The last piece also has
// all counted keys.
constexpr uint64_t kMaxPayloadBytes = push_pull::kMaxRowBytes + (1 << 20),
                   kMaxStateBytes = 1ull << 30;
// Updates of rows are small, so one system call reads many.
constexpr size_t kInboxOfRows = 64 << 10;

// The backup's state for the frames of one chunk. After a failed connection, the primary opens
// another one. Frames of the older connection are then refused, so that they cannot follow newer
// frames.
struct ChunkStream {
  absl::Mutex mu;
  uint32_t channel ABSL_GUARDED_BY(mu) = 0;  // The channel of the connection of the last frame.
  bool begun ABSL_GUARDED_BY(mu) = false;    // A state has begun, and its last rows are missing.
};

class BackupShardImpl final : public BackupShard {
 public:
  BackupShardImpl(std::shared_ptr<ShardStore> store, ReplicationOptions options)
      : store_(std::move(store)),
        options_(std::move(options)),
        streams_(options_.chunks),
        in_sync_(options_.in_sync) {
    for (int c = 0; c < options_.chunks; ++c) {
      const std::vector<push_pull::RowColumn> columns = store_->columns(c);
      widths_.push_back(columns.empty() ? 0 : static_cast<size_t>(columns[0].elements));
    }
  }

  absl::Status Serve(DataConnection& connection) override;
  bool in_sync() const override { return in_sync_; }
  void Close() override { closed_ = true; }

 private:
  // Handles one connection, on the thread that serves it.
  class Session {
   public:
    Session(BackupShardImpl& shard, DataConnection& connection)
        : shard_(shard), connection_(connection) {
      const bool rows = std::ranges::any_of(shard.widths_, [](size_t w) { return w > 0; });
      inbox_.resize(rows ? kInboxOfRows : sizeof(FrameHeader));
    }
    absl::Status Run();

   private:
    absl::Status Send(ReplicaKind kind, const ReplicaFrame& frame, const std::string& payload);
    absl::Status Receive(std::span<std::byte> into);
    absl::Status Acknowledge();
    absl::Status TakeOpen();
    // Returns false if the primary has closed the connection.
    absl::StatusOr<bool> AwaitFrame();
    absl::Status TakeFrame();

    BackupShardImpl& shard_;
    DataConnection& connection_;
    std::vector<std::byte> inbox_;  // Valid from at_ to have_.
    size_t at_ = 0, have_ = 0;
    uint64_t taken_ = 0, acknowledged_ = 0;  // Numbers of frames.
    std::vector<uint64_t> payload_;          // Aligned for all contents.
    std::vector<float> gradient_;
  };

  absl::Status Take(ReplicaKind kind, const ReplicaFrame& frame, uint32_t channel,
                    std::span<const char> payload, std::vector<float>* memory);
  absl::Status Update(int chunk, std::span<const char> payload, std::vector<float>* memory);
  absl::Status ReceiveState(ChunkStream& stream, const ReplicaFrame& frame,
                            std::span<const char> payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stream.mu);

  const std::shared_ptr<ShardStore> store_;
  const ReplicationOptions options_;
  std::vector<size_t> widths_;  // Indexed by chunk. 0 if the chunk is not of a table.
  std::vector<ChunkStream> streams_;
  std::atomic<bool> in_sync_;
  std::atomic<bool> closed_ = false;
};

absl::Status BackupShardImpl::Serve(DataConnection& connection) {
  const absl::Status status = Session(*this, connection).Run();
  if (!status.ok() && !options_.abort->is_set())
    push_pull::SendError(status, connection, *options_.abort);
  return status;
}

// ---- A connection

absl::Status BackupShardImpl::Session::Run() {
  MUSTER_RETURN_IF_ERROR(TakeOpen());
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool more, AwaitFrame());
    if (!more) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(TakeFrame());
  }
}

absl::Status BackupShardImpl::Session::Send(ReplicaKind kind, const ReplicaFrame& frame,
                                            const std::string& payload) {
  const FrameHeader header = EncodeReplica(kind, frame, payload.size());
  const MonotonicTime deadline = Clock::now() + shard_.options_.stall;
  const transport::AbortSignal& abort = *shard_.options_.abort;
  MUSTER_RETURN_IF_ERROR(
      connection_.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, abort));
  return connection_.Exchange(std::as_bytes(std::span(payload)), {}, deadline, abort);
}

// Acknowledges all frames so far. Called before this side waits for the primary, which may be
// waiting for the acknowledgement.
absl::Status BackupShardImpl::Session::Acknowledge() {
  if (std::exchange(acknowledged_, taken_) == taken_) return absl::OkStatus();
  ReplicaFrame ack;
  ack.taken = taken_;
  return Send(ReplicaKind::kAck, ack, "");
}

absl::Status BackupShardImpl::Session::Receive(std::span<std::byte> into) {
  const size_t here = std::min(into.size(), have_ - at_);
  std::memcpy(into.data(), inbox_.data() + at_, here);
  at_ += here;
  if (here == into.size()) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(Acknowledge());
  return connection_.Exchange({}, into.subspan(here), Clock::now() + shard_.options_.stall,
                              *shard_.options_.abort);
}

absl::Status BackupShardImpl::Session::TakeOpen() {
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(&header, 1))));
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  const auto& [kind, frame] = decoded;
  const ReplicationOptions& options = shard_.options_;
  if (kind != ReplicaKind::kOpen || header.payload_bytes != 0)
    return ConfigurationError(
        fmt::format("a frame of kind {:#x} came first between two parameter servers", header.kind));
  if (frame.layout != options.layout || frame.shard != static_cast<uint32_t>(options.shard))
    return ConfigurationError(
        fmt::format("the primary has other variables, or divides them in another way, than the "
                    "backup of shard {}: give all tasks the same job",
                    options.shard));
  std::vector<ShardStore::ChunkVersion> versions;
  for (int c = 0; c < options.chunks; ++c) versions.push_back(shard_.store_->chunk_version(c));
  return Send(ReplicaKind::kWelcome, {}, EncodeVersions(versions));
}

absl::StatusOr<bool> BackupShardImpl::Session::AwaitFrame() {
  if (have_ - at_ >= sizeof(FrameHeader)) return true;
  std::memmove(inbox_.data(), inbox_.data() + at_, have_ - at_);
  have_ -= std::exchange(at_, 0);
  while (have_ < sizeof(FrameHeader)) {
    iovec into{inbox_.data() + have_, inbox_.size() - have_};
    const absl::StatusOr<size_t> read = connection_.TryRead({&into, 1});
    // The end of the stream between two frames is not an error.
    if (!read.ok() && have_ == 0) return false;
    MUSTER_RETURN_IF_ERROR(read.status());
    have_ += *read;
    if (*read > 0) continue;
    MUSTER_RETURN_IF_ERROR(Acknowledge());
    // The connection may be idle for long. The view ends it with `abort`.
    const MonotonicTime until =
        have_ == 0 ? MonotonicTime::max() : Clock::now() + shard_.options_.stall;
    transport::Interest said{&connection_, true};
    const transport::WaitResult result =
        transport::WaitReady({&said, 1}, until, *shard_.options_.abort);
    if (result == transport::WaitResult::kAborted) return Superseded("the view has changed");
    if (result == transport::WaitResult::kDeadline)
      return DeadlinePassed("the primary has not ended what it said");
  }
  return true;
}

absl::Status BackupShardImpl::Session::TakeFrame() {
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(Receive(std::as_writable_bytes(std::span(&header, 1))));
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  const auto& [kind, frame] = decoded;
  if (header.payload_bytes > (kind == ReplicaKind::kState ? kMaxStateBytes : kMaxPayloadBytes))
    return PeerLost(
        fmt::format("a frame between two parameter servers has {} bytes", header.payload_bytes));
  MUSTER_RETURN_IF_ERROR(
      push_pull::ReceiveInPieces(header.payload_bytes, &payload_,
                                 [this](std::span<std::byte> into) { return Receive(into); }));
  const std::span<char> payload(reinterpret_cast<char*>(payload_.data()), header.payload_bytes);
  if (frame.checksum && Crc32c({payload.data(), payload.size()}) != frame.payload_crc)
    return PeerLost(
        fmt::format("what the primary sent of chunk {} was damaged on its way", frame.chunk));
  MUSTER_RETURN_IF_ERROR(shard_.Take(kind, frame, connection_.info().channel, payload, &gradient_));
  ++taken_;
  return absl::OkStatus();
}

// ---- Frames

absl::Status BackupShardImpl::Take(ReplicaKind kind, const ReplicaFrame& frame, uint32_t channel,
                                   std::span<const char> payload, std::vector<float>* memory) {
  if (kind == ReplicaKind::kSynced) {
    in_sync_ = true;
    return absl::OkStatus();
  }
  if (kind != ReplicaKind::kUpdate && kind != ReplicaKind::kState)
    return ConfigurationError("a primary sent what only backups send");
  if (frame.chunk >= streams_.size())
    return ConfigurationError(
        fmt::format("there is no chunk {}: this shard has {}", frame.chunk, streams_.size()));
  ChunkStream& stream = streams_[frame.chunk];
  absl::MutexLock lock(&stream.mu);
  if (closed_) return Superseded("the view has changed");
  if (channel < stream.channel) return Superseded("the primary has opened another connection");
  if (std::exchange(stream.channel, channel) != channel) stream.begun = false;
  if (kind == ReplicaKind::kState) return ReceiveState(stream, frame, payload);
  return Update(static_cast<int>(frame.chunk), payload, memory);
}

absl::Status BackupShardImpl::Update(int chunk, std::span<const char> payload,
                                     std::vector<float>* memory) {
  UpdateHead head;
  if (payload.size() < sizeof head)
    return PeerLost(fmt::format("an update came in {} bytes", payload.size()));
  std::memcpy(&head, payload.data(), sizeof head);
  MUSTER_ASSIGN_OR_RETURN(const std::span<const float> gradient,
                          GradientOf(head, widths_[chunk], payload.subspan(sizeof head), memory));
  push_pull::ChunkPush push;
  push.key = {static_cast<int>(head.worker), head.incarnation, head.sequence};
  push.learning_rate = head.learning_rate;
  push.gradient = gradient;
  push.floor = (head.flags & 1) != 0;
  return store_->Replay(chunk, push, head.number).status();
}

absl::Status BackupShardImpl::ReceiveState(ChunkStream& stream, const ReplicaFrame& frame,
                                           std::span<const char> payload) {
  MUSTER_ASSIGN_OR_RETURN(ChunkState state, DecodeState(payload));
  const Piece piece{.first = !stream.begun, .last = !frame.more};
  stream.begun = frame.more;
  return store_->Restore(static_cast<int>(frame.chunk), std::move(state), piece);
}

}  // namespace

std::shared_ptr<BackupShard> BackupShard::Make(std::shared_ptr<ShardStore> store,
                                               ReplicationOptions options) {
  return std::make_shared<BackupShardImpl>(std::move(store), std::move(options));
}

}  // namespace muster::ps
