#include "common/push_pull/push_pull.h"

#include <fmt/format.h>

#include <vector>

#include "common/base/crc32c.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

uint32_t CrcOf(std::span<const float> values) {
  return Crc32c({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

class Transfer {
 public:
  Transfer(transport::DataConnection& connection, const TransferOptions& options,
           std::span<ChunkTransfer> transfers)
      : connection_(connection), options_(options) {
    for (ChunkTransfer& transfer : transfers)
      if (!transfer.done) open_.push_back(&transfer);
  }

  absl::Status Run(MonotonicTime deadline, const transport::AbortSignal& abort);

 private:
  bool sending() const { return next_out_ < open_.size(); }
  bool receiving() const { return next_in_ < open_.size(); }
  absl::StatusOr<size_t> Send();
  absl::StatusOr<size_t> Receive();
  absl::Status TakeHeader();
  absl::Status TakePayload();

  transport::DataConnection& connection_;
  const TransferOptions& options_;
  std::vector<ChunkTransfer*> open_;

  size_t next_out_ = 0, sent_ = 0;  // bytes of its header and payload
  FrameHeader out_header_;

  size_t next_in_ = 0, received_ = 0;  // the same
  FrameHeader in_header_;
  Reply reply_;
  bool failed_ = false;  // what comes is an error's message
  std::string message_;
};

absl::StatusOr<size_t> Transfer::Send() {
  const ChunkTransfer& t = *open_[next_out_];
  if (sent_ == 0) {
    Request request;
    request.chunk = static_cast<uint32_t>(t.chunk);
    request.push = !t.gradient.empty();
    request.pull = !t.parameters.empty();
    request.checksum = options_.checksum;
    request.sequence = options_.sequence;
    request.pulled = t.pulled;
    request.learning_rate = options_.learning_rate;
    if (request.checksum) request.payload_crc = CrcOf(t.gradient);
    out_header_ = EncodeRequest(request, t.gradient.size_bytes());
  }
  const size_t head = sizeof out_header_;
  std::array<iovec, 2> parts;
  size_t count = 0;
  if (sent_ < head)
    parts[count++] = {reinterpret_cast<std::byte*>(&out_header_) + sent_, head - sent_};
  const size_t of_payload = sent_ < head ? 0 : sent_ - head;
  if (of_payload < t.gradient.size_bytes())
    parts[count++] = {const_cast<std::byte*>(std::as_bytes(t.gradient).data()) + of_payload,
                      t.gradient.size_bytes() - of_payload};
  MUSTER_ASSIGN_OR_RETURN(const size_t moved, connection_.TryWrite({parts.data(), count}));
  sent_ += moved;
  if (sent_ == head + t.gradient.size_bytes()) {
    ++next_out_;
    sent_ = 0;
  }
  return moved;
}

absl::StatusOr<size_t> Transfer::Receive() {
  const size_t head = sizeof in_header_;
  std::span<std::byte> into;
  if (received_ < head) {
    into = {reinterpret_cast<std::byte*>(&in_header_) + received_, head - received_};
  } else if (failed_) {
    into = std::as_writable_bytes(std::span(message_)).subspan(received_ - head);
  } else {
    into = std::as_writable_bytes(open_[next_in_]->parameters).subspan(received_ - head);
  }
  size_t moved = 0;
  if (!into.empty()) {
    const iovec part{into.data(), into.size()};
    MUSTER_ASSIGN_OR_RETURN(moved, connection_.TryRead({&part, 1}));
    received_ += moved;
  }
  if (received_ == head && moved > 0) MUSTER_RETURN_IF_ERROR(TakeHeader());
  if (received_ >= head && received_ == head + in_header_.payload_bytes)
    MUSTER_RETURN_IF_ERROR(TakePayload());
  return moved;
}

absl::Status Transfer::TakeHeader() {
  if (IsError(in_header_)) {
    if (in_header_.payload_bytes > kMaxErrorBytes)
      return PeerLost("a parameter server's error is longer than any");
    failed_ = true;
    message_.resize(in_header_.payload_bytes);
    return absl::OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(reply_, DecodeReply(in_header_));
  const ChunkTransfer& t = *open_[next_in_];
  if (reply_.chunk != static_cast<uint32_t>(t.chunk) ||
      in_header_.payload_bytes != t.parameters.size_bytes())
    return PeerLost(
        fmt::format("a parameter server answered with {} bytes of chunk {}, where {} of chunk {} "
                    "were asked for",
                    in_header_.payload_bytes, reply_.chunk, t.parameters.size_bytes(), t.chunk));
  return absl::OkStatus();
}

absl::Status Transfer::TakePayload() {
  if (failed_) return ErrorOf(in_header_, message_);
  ChunkTransfer& t = *open_[next_in_];
  if (reply_.checksum && CrcOf(t.parameters) != reply_.payload_crc)
    return PeerLost(fmt::format("parameters of chunk {} were damaged on their way", t.chunk));
  t.result = {reply_.applied, reply_.updates, reply_.staleness};
  t.done = true;
  ++next_in_;
  received_ = 0;
  return absl::OkStatus();
}

absl::Status Transfer::Run(MonotonicTime deadline, const transport::AbortSignal& abort) {
  while (receiving()) {
    size_t moved = 0;
    if (sending()) {
      const absl::StatusOr<size_t> sent = Send();
      // A server that closes the connection has said why, before.
      if (!sent.ok()) next_out_ = open_.size();
      moved += sent.value_or(0);
    }
    MUSTER_ASSIGN_OR_RETURN(const size_t received, Receive());
    moved += received;
    if (abort.is_set()) return Superseded("the wait was aborted");
    if (moved > 0) continue;
    transport::Interest interest{&connection_, true, sending()};
    switch (transport::WaitReady({&interest, 1}, deadline, abort)) {
      case transport::WaitResult::kReady:
        break;
      case transport::WaitResult::kDeadline:
        return DeadlinePassed(fmt::format(
            "a parameter server did not answer in time: {} of {} chunks", next_in_, open_.size()));
      case transport::WaitResult::kAborted:
        return Superseded("the wait was aborted");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OpenConnection(transport::DataConnection& connection, int worker, uint64_t incarnation,
                            uint64_t layout, MonotonicTime deadline,
                            const transport::AbortSignal& abort) {
  const FrameHeader header = EncodeOpen({incarnation, layout, static_cast<uint32_t>(worker)});
  return connection.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, abort);
}

absl::Status PushPull(transport::DataConnection& connection, const TransferOptions& options,
                      std::span<ChunkTransfer> transfers, MonotonicTime deadline,
                      const transport::AbortSignal& abort) {
  return Transfer(connection, options, transfers).Run(deadline, abort);
}

}  // namespace muster::ps
