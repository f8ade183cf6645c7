#include "common/push_pull/shard_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/files/crc32c.h"
#include "common/flight/spans.h"
#include "common/push_pull/narrow.h"
#include "common/push_pull/rows/row_pull.h"

namespace muster::push_pull {
namespace {

using transport::FrameHeader;

// Read-ahead applies to small frames: those with data in shared memory or without rows.
constexpr size_t kInbox = 64 << 10;
constexpr size_t kMaxPieces = 256;  // Per system call.
// The maximum number of frames that are prepared and not sent: with shared memory, without, and
// with compression.
constexpr size_t kMaxInMemory = 64, kMax = 8, kMaxNarrowed = 2;
// The target size of a row request of several chunks, and of its answer. It is large enough that
// overhead is small, and small enough that worker and server overlap on larger batches.
constexpr size_t kMaxTogether = 512 << 10;

// Returns in `out` the part of `pieces` from byte `from` on, as many pieces as fit.
size_t Rest(std::span<const iovec> pieces, size_t from, std::span<iovec> out) {
  size_t count = 0;
  for (const iovec& piece : pieces) {
    if (from >= piece.iov_len) {
      from -= piece.iov_len;
      continue;
    }
    if (count == out.size()) break;
    out[count++] = {static_cast<std::byte*>(piece.iov_base) + from, piece.iov_len - from};
    from = 0;
  }
  return count;
}

// Extends the last piece if `bytes` directly follow it in memory.
void Append(std::span<const std::byte> bytes, std::vector<iovec>* pieces) {
  std::byte* const data = const_cast<std::byte*>(bytes.data());
  if (bytes.empty()) return;
  if (!pieces->empty() &&
      static_cast<std::byte*>(pieces->back().iov_base) + pieces->back().iov_len == data) {
    pieces->back().iov_len += bytes.size();
  } else {
    pieces->push_back({data, bytes.size()});
  }
}

// Returns the bytes of a transfer. For rows: of the larger direction.
size_t BytesOf(const Transfer& transfer) {
  if (const ChunkPush* const push = transfer.push()) return push->gradient.size_bytes();
  const RowPull& pull = *transfer.rows();
  return std::max(pull.keys.size_bytes(), pull.rows.size_bytes());
}

// A reply to a push has the new parameters, so a push is a pull as well.
const char* SpanNameOf(Operation operation) {
  switch (operation) {
    case Operation::kPush:
      return "push and pull chunk";
    case Operation::kPushRows:
      return "push rows of chunk";
    case Operation::kPullRows:
      return "pull rows of chunk";
    default:
      return "pull chunk";
  }
}

}  // namespace

ShardConnection::ShardConnection(std::unique_ptr<transport::DataConnection> connection,
                                 Options options)
    : connection_(std::move(connection)), options_(std::move(options)), inbox_(kInbox) {
  if (options_.gradients != nullptr && options_.memory != nullptr)
    offer_ = {options_.gradients->place(), options_.memory->place()};
  Frame& open = frames_.emplace_back();
  open.header = EncodeOpen(options_.open, offer_ ? sizeof(Offer) : 0);
  open.bytes = sizeof open.header + open.header.payload_bytes;
  Append(std::as_bytes(std::span(&open.header, 1)), &open.out);
  if (offer_) Append(std::as_bytes(std::span(&*offer_, 1)), &open.out);
}

std::vector<Transfer> ShardConnection::Unanswered() const {
  std::vector<Transfer> all;
  for (const Frame& frame : frames_)
    all.insert(all.end(), frame.transfers.begin(), frame.transfers.end());
  all.insert(all.end(), queued_.begin(), queued_.end());
  return all;
}

bool ShardConnection::sending() const {
  return broken_.ok() && (sent_frames_ < frames_.size() || (welcomed_ && !queued_.empty()));
}

Operation ShardConnection::OperationOf(const Transfer& transfer) const {
  if (transfer.rows() != nullptr) return Operation::kPullRows;
  if (transfer.push() != nullptr)
    return options_.chunks[transfer.chunk].rows() ? Operation::kPushRows : Operation::kPush;
  return std::get<DensePull>(transfer.what).newer_than ? Operation::kPullNewer : Operation::kPull;
}

void ShardConnection::AddData(std::span<const std::byte> data, Frame* frame) const {
  if (options_.checksum) frame->data_crc = ExtendCrc32c(frame->data_crc, data);
  frame->data_bytes += data.size();
  Append(data, &frame->out);
}

void ShardConnection::AddPart(const Transfer& transfer, Frame* frame) const {
  RequestPart& part = frame->parts.emplace_back();
  part.chunk = static_cast<uint32_t>(transfer.chunk);
  const Operation operation = frame->operation;
  if (const RowPull* const pull = transfer.rows()) {
    part.count = static_cast<uint32_t>(pull->keys.size());
    frame->reply_bytes += pull->rows.size_bytes();
    AddData(std::as_bytes(pull->keys), frame);
  } else if (const ChunkPush* const push = transfer.push()) {
    part.pulled = push->pulled;
    part.learning_rate = push->learning_rate;
    if (IsRows(operation)) part.count = static_cast<uint32_t>(push->gradient.size());
    if (Narrows(operation) && !in_memory_) {
      frame->narrowed.resize(push->gradient.size());
      Narrow(options_.compression, push->gradient, frame->narrowed.data());
      AddData(std::as_bytes(std::span(frame->narrowed)), frame);
    } else if (IsRows(operation) || !in_memory_) {
      AddData(std::as_bytes(push->gradient), frame);
    }
  } else {
    part.pulled = std::get<DensePull>(transfer.what).newer_than.value_or(0);
  }
  if (!IsRows(operation) && !in_memory_)
    frame->reply_bytes =
        options_.chunks[transfer.chunk].elements() * BytesPerElement(options_.compression);
}

// Builds a frame of the next chunk, or of all next chunks that can travel together.
void ShardConnection::AddFrame() {
  Frame& frame = frames_.emplace_back();
  frame.operation = OperationOf(queued_.front());
  frame.begun = Clock::now();
  const bool rows = IsRows(frame.operation);
  Request request;
  if (const ChunkPush* const push = queued_.front().push()) {
    request.sequence = push->key.sequence;
    request.lease = push->key.lease;
    request.floor = push->floor;
  }
  size_t bytes = 0;
  do {
    if (rows) bytes += BytesOf(queued_.front());
    frame.transfers.push_back(queued_.front());
    queued_.pop_front();
  } while (rows && !queued_.empty() && OperationOf(queued_.front()) == frame.operation &&
           bytes + BytesOf(queued_.front()) <= kMaxTogether &&
           (frame.operation == Operation::kPullRows ||
            queued_.front().push()->key.sequence == request.sequence));
  frame.parts.reserve(frame.transfers.size());
  frame.out.resize(2);
  for (const Transfer& transfer : frame.transfers) AddPart(transfer, &frame);
  request.operation = frame.operation;
  request.in_memory = in_memory_ && !rows;
  request.checksum = options_.checksum && !request.in_memory;
  if (!rows && !in_memory_) request.compression = options_.compression;
  request.data_crc = frame.data_crc;
  frame.header = EncodeRequest(request, frame.parts, frame.data_bytes);
  frame.out[0] = {&frame.header, sizeof frame.header};
  frame.out[1] = {frame.parts.data(), frame.parts.size() * sizeof(RequestPart)};
  frame.bytes = sizeof frame.header + frame.header.payload_bytes;
}

// Prepares several frames, so that one system call sends many. Prepares fewer if each needs memory.
void ShardConnection::Prepare() {
  const size_t most = in_memory_                                   ? kMaxInMemory
                      : options_.compression != Compression::kNone ? kMaxNarrowed
                                                                   : kMax;
  while (welcomed_ && !queued_.empty() && frames_.size() - sent_frames_ < most) AddFrame();
}

absl::StatusOr<size_t> ShardConnection::Send() {
  Prepare();
  std::array<iovec, kMaxPieces> pieces;
  size_t count = 0, skip = sent_;
  for (size_t f = sent_frames_; f < frames_.size(); ++f, skip = 0)
    count += Rest(frames_[f].out, skip, std::span(pieces).subspan(count));
  if (count == 0) return size_t{0};
  MUSTER_ASSIGN_OR_RETURN(const size_t moved, connection_->TryWrite({pieces.data(), count}));
  sent_ += moved;
  for (; sent_frames_ < frames_.size() && sent_ >= frames_[sent_frames_].bytes; ++sent_frames_) {
    sent_ -= frames_[sent_frames_].bytes;
    frames_[sent_frames_].narrowed = {};
  }
  return moved;
}

absl::StatusOr<size_t> ShardConnection::Receive() {
  std::array<iovec, kMaxPieces + 1> pieces;
  size_t count = Rest(into_, filled_, std::span(pieces).first(kMaxPieces));
  size_t for_payload = 0;
  for (size_t i = 0; i < count; ++i) for_payload += pieces[i].iov_len;
  // The next bytes after the payload are a header. Reads further ahead if little or no payload
  // separates headers.
  if (count < kMaxPieces) {
    if (taken_ == have_) taken_ = have_ = 0;
    const bool ahead = in_memory_ || (!frames_.empty() && IsRows(frames_.back().operation));
    const size_t end = ahead ? inbox_.size() : sizeof(FrameHeader);
    if (have_ < end) pieces[count++] = {inbox_.data() + have_, end - have_};
  }
  MUSTER_ASSIGN_OR_RETURN(const size_t moved, connection_->TryRead({pieces.data(), count}));
  filled_ += std::min(moved, for_payload);
  have_ += moved - std::min(moved, for_payload);
  return moved;
}

absl::Status ShardConnection::TakeReply(const FrameHeader& header) {
  MUSTER_ASSIGN_OR_RETURN(reply_, DecodeReply(header));
  if (sent_frames_ == 0) return PeerLost("a parameter server answered what it was not asked");
  const Frame& frame = frames_.front();
  parts_.resize(frame.transfers.size());
  const size_t parts = parts_.size() * sizeof(ReplyPart), all = parts + frame.reply_bytes;
  const bool none = frame.operation == Operation::kPullNewer && header.payload_bytes == parts;
  if (reply_.parts != parts_.size() || (header.payload_bytes != all && !none))
    return PeerLost(fmt::format(
        "a parameter server answered {} bytes about {} chunks, where {} about {} were asked for",
        header.payload_bytes, reply_.parts, all, parts_.size()));
  incoming_ = Incoming::kReply;
  Append(std::as_bytes(std::span(parts_)), &into_);
  if (header.payload_bytes == parts) return absl::OkStatus();
  if (Narrows(frame.operation)) {
    narrowed_.resize(frame.reply_bytes / sizeof(uint16_t));
    Append(std::as_bytes(std::span(narrowed_)), &into_);
    return absl::OkStatus();
  }
  for (const Transfer& transfer : frame.transfers) {
    if (const RowPull* const pull = transfer.rows()) {
      Append(std::as_bytes(pull->rows), &into_);
      continue;
    }
    for (const std::span<float> piece : options_.parameters[transfer.chunk])
      Append(std::as_bytes(piece), &into_);
  }
  return absl::OkStatus();
}

absl::Status ShardConnection::TakeHeader(const FrameHeader& header) {
  header_ = header;
  if (!IsError(header) && welcomed_) return TakeReply(header);
  if (IsError(header)) {
    if (header.payload_bytes > kMaxErrorBytes)
      return PeerLost("a parameter server's error is longer than any");
  } else {
    MUSTER_ASSIGN_OR_RETURN(const Welcome welcome, DecodeWelcome(header));
    if (welcome.shares_memory && !offer_)
      return PeerLost("a parameter server shares memory that it was not offered");
    if (sent_frames_ == 0) return PeerLost("a parameter server answered what it was not asked");
    in_memory_ = welcome.shares_memory != 0;
  }
  message_.resize(header.payload_bytes);
  incoming_ = Incoming::kMessage;
  Append(std::as_bytes(std::span(message_)), &into_);
  return absl::OkStatus();
}

absl::Status ShardConnection::CheckReply() const {
  MUSTER_RETURN_IF_ERROR(CheckParts(std::as_bytes(std::span(parts_)), reply_.parts_crc));
  const Frame& frame = frames_.front();
  uint32_t crc = 0;
  for (size_t i = 1; i < into_.size() && reply_.checksum; ++i)
    crc = ExtendCrc32c(crc, {static_cast<const char*>(into_[i].iov_base), into_[i].iov_len});
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].chunk != static_cast<uint32_t>(frame.transfers[i].chunk))
      return PeerLost(fmt::format("a parameter server answered about chunk {}, asked about {}",
                                  parts_[i].chunk, frame.transfers[i].chunk));
    const bool data = into_.size() > 1, same = parts_[i].same != 0;
    if (same ? data || frame.operation != Operation::kPullNewer : !data && frame.reply_bytes > 0)
      return PeerLost(fmt::format("a parameter server answered without the parameters of chunk {}",
                                  parts_[i].chunk));
  }
  if (!reply_.checksum || crc == reply_.data_crc) return absl::OkStatus();
  return PeerLost(fmt::format("parameters of chunk {} were damaged on their way", parts_[0].chunk));
}

// Copies the parameters that were received outside their destination.
void ShardConnection::CopyParameters(int chunk) const {
  const float* from =
      in_memory_ ? options_.memory->floats().data() + options_.chunks[chunk].begin : nullptr;
  const uint16_t* narrowed = narrowed_.data();
  for (const std::span<float> piece : options_.parameters[chunk]) {
    if (in_memory_) {
      std::copy_n(from, piece.size(), piece.data());
      from += piece.size();
    } else if (options_.compression != Compression::kNone) {
      Widen(options_.compression, narrowed, piece);
      narrowed += piece.size();
    }
  }
}

// Handles a complete frame.
absl::Status ShardConnection::Finish(std::vector<ChunkAnswer>* answers) {
  if (std::exchange(incoming_, Incoming::kHeader) == Incoming::kMessage) {
    if (IsError(header_)) return ErrorOf(header_, message_);
    welcomed_ = true;
    if (offer_ && !in_memory_) declined_ = message_;
  } else {
    MUSTER_RETURN_IF_ERROR(CheckReply());
    const Frame& frame = frames_.front();
    int64_t moved = 0;
    const int64_t each = in_memory_ ? 4 : BytesPerElement(options_.compression);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& transfer = frame.transfers[i];
      const ReplyPart& part = parts_[i];
      int64_t bytes = 0;
      if (IsRows(frame.operation)) {
        bytes = static_cast<int64_t>(BytesOf(transfer));
      } else {
        if (part.same == 0) CopyParameters(transfer.chunk);
        const int64_t size = each * options_.chunks[transfer.chunk].elements();
        const int64_t pushed = transfer.push() != nullptr ? size : 0;
        const int64_t pulled = part.same == 0 ? size : 0;
        if (in_memory_ && options_.traffic != nullptr) options_.traffic->Add(pushed, pulled);
        bytes = pushed + pulled;
      }
      moved += bytes;
      answers->push_back(
          {transfer, {part.applied != 0, part.updates, part.staleness, part.refused != 0}, bytes});
    }
    AddSpan(SpanNameOf(frame.operation), frame.begun, frame.transfers.front().chunk, moved);
  }
  frames_.pop_front();
  --sent_frames_;
  into_.clear();
  filled_ = 0;
  return absl::OkStatus();
}

absl::Status ShardConnection::Take(std::vector<ChunkAnswer>* answers) {
  for (;;) {
    size_t expected = 0;
    for (const iovec& piece : into_) expected += piece.iov_len;
    if (incoming_ != Incoming::kHeader) {
      // Copies payload bytes that were received together with headers.
      while (filled_ < expected && taken_ < have_) {
        iovec next{};
        Rest(into_, filled_, {&next, 1});
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
    // A server sends the reason before it closes the connection.
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

}  // namespace muster::push_pull
