#include "ps/replication/replication_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/base/files/crc32c.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

constexpr Duration kLook = std::chrono::milliseconds(20);
// Frames up to kSmall bytes are copied until kOutbox bytes are sent together.
constexpr size_t kSmall = 16 << 10, kOutbox = 64 << 10;

void Append(std::span<const std::byte> bytes, std::vector<std::byte>* to) {
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

absl::Status ReplicaLink::Open(MonotonicTime deadline,
                               std::vector<ShardStore::ChunkVersion>* versions) {
  ReplicaFrame frame;
  frame.shard = static_cast<uint32_t>(options_.shard);
  frame.layout = options_.layout;
  const FrameHeader open = EncodeReplica(ReplicaKind::kOpen, frame, 0);
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(ExchangeAll(std::as_bytes(std::span(&open, 1)),
                                     std::as_writable_bytes(std::span(&header, 1)), deadline));
  const bool refused = push_pull::IsError(header);
  const size_t welcome = static_cast<size_t>(options_.chunks) * sizeof(int64_t);
  if (header.payload_bytes > (refused ? push_pull::kMaxErrorBytes : welcome))
    return PeerLost("a backup's answer is longer than any");
  std::string payload(header.payload_bytes, '\0');
  MUSTER_RETURN_IF_ERROR(ExchangeAll({}, std::as_writable_bytes(std::span(payload)), deadline));
  if (refused) return push_pull::ErrorOf(header, payload);
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  if (decoded.first != ReplicaKind::kWelcome)
    return PeerLost(fmt::format("a backup answered with a frame of kind {:#x}", header.kind));
  MUSTER_ASSIGN_OR_RETURN(*versions, DecodeVersions(payload));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReplicaLink::Send(ReplicaKind kind, ReplicaFrame frame,
                                           const Payload& payload, Duration limit) {
  size_t bytes = 0;
  frame.checksum = options_.checksum;
  for (const std::span<const std::byte> piece : payload) {
    bytes += piece.size();
    if (frame.checksum) frame.payload_crc = ExtendCrc32c(frame.payload_crc, piece);
  }
  const FrameHeader header = EncodeReplica(kind, frame, bytes);
  absl::MutexLock lock(&mu_);
  if (!error_.ok()) return error_;
  if (bytes > kSmall) MUSTER_RETURN_IF_ERROR(WaitForTurnLocked(limit));
  const uint64_t number = ++sent_;
  Append(std::as_bytes(std::span(&header, 1)), &outbox_);
  if (bytes > kSmall) {
    MUSTER_RETURN_IF_ERROR(WriteLocked(payload, limit));
    return number;
  }
  for (const std::span<const std::byte> piece : payload) Append(piece, &outbox_);
  if (outbox_.size() >= kOutbox) MUSTER_RETURN_IF_ERROR(WriteLocked({}, limit));
  return number;
}

// Waits until no thread is writing.
absl::Status ReplicaLink::WaitForTurnLocked(Duration limit) {
  const MonotonicTime begin = Clock::now();
  while (writing_ && error_.ok()) {
    const MonotonicTime until = std::max(begin, written_) + limit;
    if (Clock::now() >= until) FailLocked(DeadlinePassed("the backup takes nothing"));
    changed_.WaitUntil(&mu_, until);
  }
  return error_;
}

// Writes the outbox and then `rest`.
absl::Status ReplicaLink::WriteLocked(const Payload& rest, Duration limit) {
  MUSTER_RETURN_IF_ERROR(WaitForTurnLocked(limit));
  writing_ = true;
  leaving_.swap(outbox_);
  std::array<iovec, 1 + std::tuple_size_v<Payload>> parts{iovec{leaving_.data(), leaving_.size()}};
  for (size_t i = 0; i < rest.size(); ++i)
    parts[1 + i] = {const_cast<std::byte*>(rest[i].data()), rest[i].size()};
  written_ = Clock::now();
  for (size_t at = 0; error_.ok();) {
    while (at < parts.size() && parts[at].iov_len == 0) ++at;
    if (at == parts.size()) break;
    const absl::StatusOr<size_t> moved = connection_->TryWrite(std::span(parts).subspan(at));
    if (!moved.ok()) {
      ReadLocked();  // The backup may have sent the reason.
      FailLocked(moved.status());
      break;
    }
    for (size_t left = *moved, i = at; left > 0; ++i) {
      const size_t part = std::min(left, parts[i].iov_len);
      parts[i].iov_base = static_cast<std::byte*>(parts[i].iov_base) + part;
      parts[i].iov_len -= part;
      left -= part;
    }
    if (*moved > 0) {
      written_ = Clock::now();
      continue;
    }
    // Reads replies meanwhile, so that the backup never waits for this side to read.
    ReadLocked();
    if (error_.ok()) WaitLocked(/*write=*/true, limit, written_);
  }
  leaving_.clear();
  writing_ = false;
  changed_.SignalAll();
  return error_;
}

void ReplicaLink::WaitLocked(bool write, Duration limit, const MonotonicTime& since) {
  transport::Interest interest{connection_.get(), true, write};
  const MonotonicTime until = since + limit;
  mu_.Unlock();
  const transport::WaitResult result = transport::WaitReady({&interest, 1}, until, *options_.abort);
  mu_.Lock();
  if (result == transport::WaitResult::kAborted) FailLocked(Superseded("the view has changed"));
  if (result == transport::WaitResult::kDeadline && since + limit <= until)
    FailLocked(DeadlinePassed("the backup does not answer"));
}

absl::Status ReplicaLink::Await(uint64_t number) {
  absl::MutexLock lock(&mu_);
  if (taken_ >= number) return absl::OkStatus();
  if (!outbox_.empty()) MUSTER_RETURN_IF_ERROR(WriteLocked({}, options_.stall));
  while (error_.ok() && taken_ < number) {
    if (reading_) {
      changed_.Wait(&mu_);  // The reading thread's wait bounds this one.
      continue;
    }
    ReadLocked();
    if (!error_.ok() || taken_ >= number) break;
    reading_ = true;
    answered_ = std::max(answered_, written_);  // No reply was due before the last write.
    WaitLocked(/*write=*/false, options_.stall, answered_);
    reading_ = false;
    changed_.SignalAll();
  }
  return taken_ >= number ? absl::OkStatus() : error_;
}

void ReplicaLink::ReadLocked() {
  while (error_.ok()) {
    iovec into{inbox_.data() + have_, inbox_.size() - have_};
    const absl::StatusOr<size_t> read = connection_->TryRead({&into, 1});
    if (!read.ok()) return FailLocked(read.status());
    if (*read == 0) return;
    have_ += *read;
    while (error_.ok() && TakeFrameLocked()) {
    }
  }
}

// Returns false if the frame is incomplete.
bool ReplicaLink::TakeFrameLocked() {
  FrameHeader header;
  if (have_ < sizeof header) return false;
  std::memcpy(&header, inbox_.data(), sizeof header);
  size_t bytes = sizeof header;
  if (push_pull::IsError(header)) {
    const size_t said = std::min<size_t>(header.payload_bytes, push_pull::kMaxErrorBytes);
    if (have_ < bytes + said) return false;
    FailLocked(
        push_pull::ErrorOf(header, {reinterpret_cast<const char*>(inbox_.data()) + bytes, said}));
    return false;
  }
  const auto decoded = DecodeReplica(header);
  if (!decoded.ok()) {
    FailLocked(decoded.status());
  } else if (decoded->first != ReplicaKind::kAck || header.payload_bytes != 0) {
    FailLocked(PeerLost(fmt::format("a backup answered with a frame of kind {:#x}", header.kind)));
  } else {
    taken_ = decoded->second.taken;
    answered_ = Clock::now();
    changed_.SignalAll();
  }
  have_ -= bytes;
  std::memmove(inbox_.data(), inbox_.data() + bytes, have_);
  return true;
}

void ReplicaLink::FailLocked(const absl::Status& why) {
  if (!error_.ok()) return;
  error_ = why;
  connection_->Shutdown();
  changed_.SignalAll();
}

absl::StatusOr<std::shared_ptr<ReplicaLink>> ReplicaDialer::Dial(
    MonotonicTime deadline, std::vector<ShardStore::ChunkVersion>* versions) {
  const auto annotate = [this](const absl::Status& status) {
    return Annotate(status, fmt::format("ps {}: ", options_.backup));
  };
  const transport::Hello hello{options_.view, kReplicaFrom + options_.task, options_.shard,
                               ++channel_, options_.ticket};
  const auto dialing = options_.listener->Dial(
      {options_.address, hello, deadline, fmt::format("ps:{}", options_.backup)});
  std::unique_ptr<transport::DataConnection> connection;
  for (uint64_t seen = 0; connection == nullptr; options_.listener->WaitForChange(&seen, kLook)) {
    if (options_.abort->is_set()) return Superseded("the view has changed");
    if (auto result = dialing->TakeResult()) {
      if (!result->ok()) return annotate(result->status());
      connection = *std::move(*result);
      break;
    }
  }
  auto link = std::make_shared<ReplicaLink>(std::move(connection), options_);
  if (const absl::Status status = link->Open(deadline, versions); !status.ok())
    return annotate(status);
  return link;
}

}  // namespace muster::ps
