#include "common/push_pull/shard_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/push_pull/narrow.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

// Of frames that are read ahead: headers alone where payloads lie in shared memory, and rows, which
// are copied once more then. A step has a frame for each table and chunk; of several tables they
// are small and many, and each would cost a system call.
constexpr size_t kInbox = 64 << 10;
constexpr size_t kMostPieces = 256;       // of one system call
constexpr size_t kMostBytes = 128 << 10;  // ... of small frames: a socket takes no more of them
constexpr size_t kMostInMemory = 64, kMostRows = kMostPieces / 2;

// Those of `pieces` from byte `from` on, at the most `limit`.
size_t Rest(std::span<const iovec> pieces, size_t from, std::span<iovec> out, size_t limit) {
  size_t count = 0;
  for (const iovec& piece : pieces) {
    if (from >= piece.iov_len) {
      from -= piece.iov_len;
      continue;
    }
    if (count == limit) break;
    out[count++] = {static_cast<std::byte*>(piece.iov_base) + from, piece.iov_len - from};
    from = 0;
  }
  return count;
}

}  // namespace

ShardConnection::ShardConnection(std::unique_ptr<transport::DataConnection> connection,
                                 Options options)
    : connection_(std::move(connection)), options_(std::move(options)), inbox_(kInbox) {
  Outgoing open;
  if (options_.gradients != nullptr && options_.parameters != nullptr) {
    offer_ = EncodeOffer({options_.gradients->place(), options_.parameters->place()});
    open.payload = std::as_bytes(std::span(offer_));
  }
  open.header = EncodeOpen(options_.open, open.payload.size());
  out_.push_back(std::move(open));
}

std::vector<ChunkRequest> ShardConnection::Unanswered() const {
  std::vector<ChunkRequest> all(asked_.begin(), asked_.end());
  all.insert(all.end(), queued_.begin(), queued_.end());
  return all;
}

bool ShardConnection::sending() const {
  return broken_.ok() && (!out_.empty() || (welcomed_ && !queued_.empty()));
}

ShardConnection::Outgoing ShardConnection::MakeOutgoing(const ChunkRequest& r) {
  Request request;
  request.chunk = static_cast<uint32_t>(r.chunk);
  request.push = r.push();
  request.rows = r.rows;
  request.pull = !r.parameters.empty();
  request.sequence = r.sequence;
  request.lease = r.lease;
  request.pulled = r.pulled;
  request.learning_rate = r.learning_rate;
  request.floor = r.floor;
  request.if_newer = r.if_newer;
  Outgoing out;
  if (r.rows) {
    request.checksum = options_.checksum;
    out.payload = request.push ? std::as_bytes(r.gradient) : std::as_bytes(r.keys);
    if (request.checksum) request.payload_crc = Crc32c(out.payload);
  } else if (in_memory_) {
    request.in_memory = true;
  } else {
    request.checksum = options_.checksum;
    request.compression = options_.compression;
    out.payload = std::as_bytes(r.gradient);
    if (request.push && request.compression != Compression::kNone) {
      out.narrowed.resize(r.gradient.size());
      Narrow(request.compression, r.gradient, out.narrowed.data());
      out.payload = std::as_bytes(std::span(out.narrowed));
    }
    if (request.checksum) request.payload_crc = Crc32c(out.payload);
  }
  out.header = EncodeRequest(request, out.payload.size());
  return out;
}

// Some ahead, so that one system call takes many; few where each costs memory.
void ShardConnection::Prepare() {
  const size_t usual = in_memory_                                   ? kMostInMemory
                       : options_.compression != Compression::kNone ? 2
                                                                    : 8;
  while (welcomed_ && !queued_.empty()) {
    const ChunkRequest& next = queued_.front();
    if (out_.size() >= (next.rows ? kMostRows : usual)) break;
    out_.push_back(MakeOutgoing(next));
    asked_.push_back(next);
    queued_.pop_front();
  }
}

absl::StatusOr<size_t> ShardConnection::Send() {
  Prepare();
  std::array<iovec, kMostPieces> pieces;
  size_t count = 0, skip = sent_, bytes = 0;
  for (Outgoing& out : out_) {
    const iovec whole[] = {{&out.header, sizeof out.header},
                           {const_cast<std::byte*>(out.payload.data()), out.payload.size()}};
    if (count + 2 > pieces.size() || bytes > kMostBytes) break;
    bytes += out.bytes();
    count += Rest(whole, skip, std::span(pieces).subspan(count), 2);
    skip = 0;
  }
  if (count == 0) return size_t{0};
  MUSTER_ASSIGN_OR_RETURN(const size_t moved, connection_->TryWrite({pieces.data(), count}));
  sent_ += moved;
  while (!out_.empty() && sent_ >= out_.front().bytes()) {
    sent_ -= out_.front().bytes();
    out_.pop_front();
  }
  return moved;
}

absl::StatusOr<size_t> ShardConnection::Receive() {
  std::array<iovec, kMostPieces + 1> pieces;
  size_t count = Rest(into_, filled_, pieces, kMostPieces);
  size_t room = 0;
  for (size_t i = 0; i < count; ++i) room += pieces[i].iov_len;
  const size_t for_payload = room;
  // What follows the payload is a header. More than that where little or nothing is between them.
  if (count < kMostPieces) {
    if (taken_ == have_) taken_ = have_ = 0;
    const bool ahead = in_memory_ || (!asked_.empty() && asked_.back().rows);
    const size_t end = ahead ? inbox_.size() : sizeof(FrameHeader);
    if (have_ < end) pieces[count++] = {inbox_.data() + have_, end - have_};
  }
  MUSTER_ASSIGN_OR_RETURN(const size_t moved, connection_->TryRead({pieces.data(), count}));
  filled_ += std::min(moved, for_payload);
  have_ += moved - std::min(moved, for_payload);
  return moved;
}

void ShardConnection::Expect(Incoming what, std::span<std::byte> bytes) {
  incoming_ = what;
  into_.assign(1, iovec{bytes.data(), bytes.size()});
}

absl::Status ShardConnection::TakeReply(const FrameHeader& header) {
  MUSTER_ASSIGN_OR_RETURN(reply_, DecodeReply(header));
  if (asked_.empty()) return PeerLost("a parameter server answered what it was not asked");
  const ChunkRequest& r = asked_.front();
  if (reply_.same && !r.if_newer)
    return PeerLost(
        fmt::format("a parameter server answered without the parameters of chunk {}", r.chunk));
  const bool pull = !r.parameters.empty() && !reply_.same;
  const bool narrow = options_.compression != Compression::kNone && !r.rows;
  const bool in_memory = in_memory_ && !r.rows;
  const size_t bytes = pull && !in_memory ? r.elements * (narrow ? 2 : 4) : size_t{0};
  if (reply_.chunk != static_cast<uint32_t>(r.chunk) || header.payload_bytes != bytes)
    return PeerLost(
        fmt::format("a parameter server answered with {} bytes of chunk {}, where {} of chunk {} "
                    "were asked for",
                    header.payload_bytes, reply_.chunk, bytes, r.chunk));
  if (pull && !in_memory && narrow) {
    narrowed_.resize(r.elements);
    Expect(Incoming::kNarrowed, std::as_writable_bytes(std::span(narrowed_)));
    return absl::OkStatus();
  }
  incoming_ = Incoming::kParameters;
  if (pull && !in_memory)
    for (const std::span<float> piece : r.parameters)
      into_.push_back({piece.data(), piece.size_bytes()});
  return absl::OkStatus();
}

absl::Status ShardConnection::TakeHeader(const FrameHeader& header) {
  header_ = header;
  into_.clear();
  filled_ = 0;
  if (IsError(header)) {
    if (header.payload_bytes > kMaxErrorBytes)
      return PeerLost("a parameter server's error is longer than any");
  } else if (!welcomed_) {
    MUSTER_ASSIGN_OR_RETURN(const Welcome welcome, DecodeWelcome(header));
    if (welcome.shares_memory && offer_.empty())
      return PeerLost("a parameter server shares memory that it was not offered");
    in_memory_ = welcome.shares_memory;
  } else {
    return TakeReply(header);
  }
  message_.resize(header.payload_bytes);
  Expect(Incoming::kMessage, std::as_writable_bytes(std::span(message_)));
  return absl::OkStatus();
}

absl::Status ShardConnection::CheckParameters() const {
  uint32_t crc = 0;
  for (const iovec& piece : into_)
    crc = ExtendCrc32c(crc, {static_cast<const char*>(piece.iov_base), piece.iov_len});
  if (crc == reply_.payload_crc) return absl::OkStatus();
  return PeerLost(fmt::format("parameters of chunk {} were damaged on their way", reply_.chunk));
}

// The frame is complete.
absl::Status ShardConnection::Finish(std::vector<ChunkAnswer>* answers) {
  const Incoming what = std::exchange(incoming_, Incoming::kHeader);
  if (what == Incoming::kMessage) {
    if (IsError(header_)) return ErrorOf(header_, message_);
    welcomed_ = true;
    if (!offer_.empty() && !in_memory_) declined_ = message_;
    return absl::OkStatus();
  }
  if (reply_.checksum) MUSTER_RETURN_IF_ERROR(CheckParameters());
  const ChunkRequest& r = asked_.front();
  const bool in_memory = in_memory_ && !r.rows;
  const float* from = in_memory ? options_.parameters->floats().data() + r.offset : nullptr;
  const uint16_t* narrowed = narrowed_.data();
  const bool pulled = !r.parameters.empty() && !reply_.same;
  for (const std::span<float> piece : r.parameters) {
    if (!pulled) break;
    if (in_memory) {
      std::copy_n(from, piece.size(), piece.data());
      from += piece.size();
    } else if (what == Incoming::kNarrowed) {
      Widen(options_.compression, narrowed, piece);
      narrowed += piece.size();
    }
  }
  const int64_t width =
      in_memory || r.rows ? 4 : static_cast<int64_t>(BytesPerElement(options_.compression));
  const int64_t ways = (r.gradient.empty() ? 0 : 1) + (pulled ? 1 : 0);
  answers->push_back({r,
                      {reply_.applied, reply_.updates, reply_.staleness, reply_.refused},
                      ways * r.elements * width});
  asked_.pop_front();
  into_.clear();
  filled_ = 0;
  return absl::OkStatus();
}

absl::Status ShardConnection::Take(std::vector<ChunkAnswer>* answers) {
  for (;;) {
    size_t expected = 0;
    for (const iovec& piece : into_) expected += piece.iov_len;
    if (incoming_ != Incoming::kHeader) {
      // Bytes of a payload that came along with headers.
      while (filled_ < expected && taken_ < have_) {
        iovec next{};
        Rest(into_, filled_, {&next, 1}, 1);
        const size_t n = std::min(next.iov_len, have_ - taken_);
        std::memcpy(next.iov_base, inbox_.data() + taken_, n);
        taken_ += n;
        filled_ += n;
      }
      if (filled_ < expected) return absl::OkStatus();
      MUSTER_RETURN_IF_ERROR(Finish(answers));
    }
    if (have_ - taken_ < sizeof(FrameHeader)) {
      std::memmove(inbox_.data(), inbox_.data() + taken_, have_ - taken_);
      have_ -= std::exchange(taken_, 0);
      return absl::OkStatus();
    }
    FrameHeader header;
    std::memcpy(&header, inbox_.data() + taken_, sizeof header);
    taken_ += sizeof header;
    MUSTER_RETURN_IF_ERROR(TakeHeader(header));
  }
}

absl::StatusOr<bool> ShardConnection::Pump(std::vector<ChunkAnswer>* answers) {
  bool moved = false;
  if (sending()) {
    const absl::StatusOr<size_t> sent = Send();
    moved = sent.value_or(0) > 0;
    // A server that closes the connection has said why, before.
    broken_ = sent.status();
  }
  const absl::StatusOr<size_t> received = Receive();
  MUSTER_RETURN_IF_ERROR(received.status());
  if (*received == 0) {
    if (!broken_.ok()) return broken_;
    return moved;
  }
  MUSTER_RETURN_IF_ERROR(Take(answers));
  return true;
}

}  // namespace muster::ps
