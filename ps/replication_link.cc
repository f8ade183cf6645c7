#include "ps/replication_link.h"

#include <fmt/format.h>

#include <cstring>

#include "common/base/crc32c.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr size_t kMaxAnswerBytes = 64 << 20;

}  // namespace

absl::StatusOr<ReplicaFrame> ReplicaLink::Receive(ReplicaKind kind, std::string* payload,
                                                  MonotonicTime deadline) {
  FrameHeader header;
  const transport::AbortSignal& abort = *options_.abort;
  MUSTER_RETURN_IF_ERROR(
      connection_->Exchange({}, std::as_writable_bytes(std::span(&header, 1)), deadline, abort));
  const bool refused = IsError(header);
  if (header.payload_bytes > (refused ? kMaxErrorBytes : kMaxAnswerBytes))
    return PeerLost("a backup's answer is longer than any");
  std::string bytes(header.payload_bytes, '\0');
  MUSTER_RETURN_IF_ERROR(
      connection_->Exchange({}, std::as_writable_bytes(std::span(bytes)), deadline, abort));
  if (refused) return ErrorOf(header, bytes);
  MUSTER_ASSIGN_OR_RETURN(const auto decoded, DecodeReplica(header));
  if (decoded.first != kind)
    return PeerLost(fmt::format("a backup answered with a frame of kind {:#x}, where {:#x} belongs",
                                header.kind, static_cast<uint16_t>(kind)));
  if (payload != nullptr) *payload = std::move(bytes);
  return decoded.second;
}

absl::Status ReplicaLink::Open(MonotonicTime deadline,
                               std::vector<DenseStore::Standing>* standings) {
  ReplicaFrame frame;
  frame.shard = static_cast<uint32_t>(options_.shard);
  frame.layout = options_.layout;
  frame.standing = standings != nullptr;
  const FrameHeader header = EncodeReplica(ReplicaKind::kOpen, frame, 0);
  MUSTER_RETURN_IF_ERROR(
      connection_->Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, *options_.abort));
  std::string payload;
  MUSTER_RETURN_IF_ERROR(Receive(ReplicaKind::kWelcome, &payload, deadline).status());
  if (standings == nullptr) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(*standings, DecodeStandings(payload));
  return absl::OkStatus();
}

absl::StatusOr<bool> ReplicaLink::Ask(ReplicaKind kind, ReplicaFrame frame, Payload payload,
                                      MonotonicTime deadline) {
  auto& [head, rest] = payload;
  frame.checksum = options_.checksum;
  if (frame.checksum) frame.payload_crc = ExtendCrc32c(Crc32c(head), rest);
  const FrameHeader header = EncodeReplica(kind, frame, head.size() + rest.size());
  const transport::AbortSignal& abort = *options_.abort;
  // Small pieces leave together.
  std::array<std::byte, sizeof header + sizeof(UpdateHead)> first;
  std::memcpy(first.data(), &header, sizeof header);
  size_t size = sizeof header;
  if (head.size() <= sizeof(UpdateHead)) {
    if (!head.empty()) std::memcpy(first.data() + size, head.data(), head.size());
    size += head.size();
    head = {};
  }
  MUSTER_RETURN_IF_ERROR(connection_->Exchange(std::span(first).first(size), {}, deadline, abort));
  for (const std::span<const std::byte> piece : payload)
    if (!piece.empty()) MUSTER_RETURN_IF_ERROR(connection_->Exchange(piece, {}, deadline, abort));
  MUSTER_ASSIGN_OR_RETURN(const ReplicaFrame ack, Receive(ReplicaKind::kAck, nullptr, deadline));
  return !ack.stale;
}

absl::StatusOr<std::unique_ptr<ReplicaLink>> ReplicaDialer::Dial(
    MonotonicTime deadline, std::vector<DenseStore::Standing>* standings) {
  const auto annotate = [this](const absl::Status& status) {
    return Annotate(status, fmt::format("ps {}: ", options_.backup));
  };
  const transport::Hello hello{options_.view, kReplicaFrom + options_.task, options_.shard,
                               ++channel_, options_.ticket};
  const auto dialing = options_.listener->Dial({options_.address, hello, deadline});
  std::unique_ptr<transport::DataConnection> connection;
  for (uint64_t seen = 0; connection == nullptr; options_.listener->WaitForChange(&seen, kLook)) {
    if (options_.abort->is_set()) return Superseded("the view has changed");
    if (auto result = dialing->TakeResult()) {
      if (!result->ok()) return annotate(result->status());
      connection = *std::move(*result);
      break;
    }
  }
  auto link = std::make_unique<ReplicaLink>(std::move(connection), options_);
  if (const absl::Status status = link->Open(deadline, standings); !status.ok())
    return annotate(status);
  return link;
}

}  // namespace muster::ps
