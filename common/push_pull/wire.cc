#include "common/push_pull/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/hash.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

// A body's fields one after the other; its last four bytes are the checksum of all that is before.
constexpr size_t kCrcAt = sizeof(FrameHeader::body) - 4;

class Writer {
 public:
  Writer(FrameKind kind, uint64_t payload_bytes) {
    header_.kind = static_cast<uint16_t>(kind);
    header_.payload_bytes = payload_bytes;
  }
  template <typename T>
  Writer& Put(T value) {
    std::memcpy(header_.body + at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  FrameHeader Done();

 private:
  FrameHeader header_;
  size_t at_ = 0;
};

uint32_t CrcOf(const FrameHeader& header) {
  return Crc32c({reinterpret_cast<const char*>(&header), sizeof header - 4});
}

FrameHeader Writer::Done() {
  const uint32_t crc = CrcOf(header_);
  std::memcpy(header_.body + kCrcAt, &crc, sizeof crc);
  return header_;
}

class Reader {
 public:
  explicit Reader(const FrameHeader& header) : header_(header) {}
  template <typename T>
  Reader& Get(T* value) {
    std::memcpy(value, header_.body + at_, sizeof *value);
    at_ += sizeof *value;
    return *this;
  }

 private:
  const FrameHeader& header_;
  size_t at_ = 0;
};

absl::Status Check(const FrameHeader& header, FrameKind kind) {
  uint32_t crc = 0;
  std::memcpy(&crc, header.body + kCrcAt, sizeof crc);
  if (header.magic != FrameHeader::kMagic || crc != CrcOf(header))
    return PeerLost("a frame on a parameter server's connection is damaged");
  if (header.kind != static_cast<uint16_t>(kind))
    return ConfigurationError(fmt::format(
        "a frame of kind {:#x} came on a parameter server's connection, where {:#x} belongs",
        header.kind, static_cast<uint16_t>(kind)));
  return absl::OkStatus();
}

enum Flags : uint32_t {
  kPush = 1,
  kPull = 2,
  kChecksum = 4,
  kApplied = 8,
  kBFloat16 = 16,
  kFloat16 = 32,
  kInMemory = 64,
  kRows = 128,
  kFloor = 512,
  kIfNewer = 1024,
  kSame = 2048,
  kRefused = 4096,
};

uint32_t If(bool set, Flags flag) { return set ? flag : 0u; }

}  // namespace

uint64_t LayoutNumber(std::string_view digest) {
  uint64_t number = 0;
  const char* const end = digest.data() + digest.size();
  const auto [at, error] = std::from_chars(digest.data(), end, number, 16);
  return error == std::errc() && at == end ? number : Fnv1a(digest);
}

FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes) {
  return Writer(FrameKind::kOpen, payload_bytes)
      .Put(kWireVersion)
      .Put(open.worker)
      .Put(open.incarnation)
      .Put(open.layout)
      .Put(open.view)
      .Put(open.shard)
      .Done();
}

std::string EncodeOffer(const Offer& offer) {
  std::string bytes;
  for (const transport::SharedMemory::Place& place : {offer.gradients, offer.parameters}) {
    const uint64_t words[] = {static_cast<uint64_t>(place.pid), static_cast<uint64_t>(place.fd),
                              place.bytes, place.nonce};
    bytes.append(reinterpret_cast<const char*>(words), sizeof words);
  }
  return bytes;
}

Offer DecodeOffer(std::span<const char, kOfferBytes> payload) {
  uint64_t words[8];
  std::memcpy(words, payload.data(), sizeof words);
  const auto place = [](const uint64_t* w) {
    return transport::SharedMemory::Place{static_cast<int64_t>(w[0]), static_cast<int64_t>(w[1]),
                                          w[2], w[3]};
  };
  return {place(words), place(words + 4)};
}

FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message) {
  message->resize(std::min(message->size(), kMaxErrorBytes));
  return Writer(FrameKind::kWelcome, message->size())
      .Put(If(welcome.shares_memory, kInMemory))
      .Done();
}

FrameHeader EncodeRequest(const Request& request, uint64_t payload_bytes) {
  const uint32_t flags = If(request.push, kPush) | If(request.pull, kPull) |
                         If(request.checksum, kChecksum) | If(request.in_memory, kInMemory) |
                         If(request.rows, kRows) | If(request.floor, kFloor) |
                         If(request.if_newer, kIfNewer) |
                         If(request.compression == Compression::kBFloat16, kBFloat16) |
                         If(request.compression == Compression::kFloat16, kFloat16);
  return Writer(FrameKind::kRequest, payload_bytes)
      .Put(request.chunk)
      .Put(flags)
      .Put(request.sequence)
      .Put(request.pulled)
      .Put(request.learning_rate)
      .Put(request.payload_crc)
      .Put(request.lease)
      .Done();
}

FrameHeader EncodeReply(const Reply& reply, uint64_t payload_bytes) {
  const uint32_t flags = If(reply.applied, kApplied) | If(reply.refused, kRefused) |
                         If(reply.checksum, kChecksum) | If(reply.same, kSame);
  return Writer(FrameKind::kReply, payload_bytes)
      .Put(reply.chunk)
      .Put(flags)
      .Put(reply.updates)
      .Put(reply.staleness)
      .Put(reply.payload_crc)
      .Done();
}

FrameHeader EncodeError(const absl::Status& error, std::string* message) {
  *message = std::string(Message(error)).substr(0, kMaxErrorBytes);
  return Writer(FrameKind::kError, message->size()).Put(static_cast<int32_t>(error.code())).Done();
}

void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort) {
  std::string message;
  const FrameHeader header = EncodeError(error, &message);
  const MonotonicTime deadline = Clock::now() + std::chrono::seconds(1);
  if (connection.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, abort).ok())
    (void)connection.Exchange(std::as_bytes(std::span(message)), {}, deadline, abort);
  connection.Shutdown();
}

absl::StatusOr<Open> DecodeOpen(const FrameHeader& header) {
  MUSTER_RETURN_IF_ERROR(Check(header, FrameKind::kOpen));
  Open open;
  uint32_t version = 0;
  Reader(header)
      .Get(&version)
      .Get(&open.worker)
      .Get(&open.incarnation)
      .Get(&open.layout)
      .Get(&open.view)
      .Get(&open.shard);
  if (version != kWireVersion)
    return ConfigurationError(
        fmt::format("a worker speaks version {} of the parameter servers' protocol, this one {}: "
                    "start all tasks from one version of Muster",
                    version, kWireVersion));
  if (header.payload_bytes != 0 && header.payload_bytes != kOfferBytes)
    return ConfigurationError(
        fmt::format("a worker's first frame has a payload of {} bytes, not {}",
                    header.payload_bytes, kOfferBytes));
  return open;
}

absl::StatusOr<Welcome> DecodeWelcome(const FrameHeader& header) {
  MUSTER_RETURN_IF_ERROR(Check(header, FrameKind::kWelcome));
  if (header.payload_bytes > kMaxErrorBytes)
    return PeerLost("a parameter server's welcome is longer than any");
  uint32_t flags = 0;
  Reader(header).Get(&flags);
  return Welcome{(flags & kInMemory) != 0};
}

absl::StatusOr<Request> DecodeRequest(const FrameHeader& header) {
  MUSTER_RETURN_IF_ERROR(Check(header, FrameKind::kRequest));
  Request request;
  uint32_t flags = 0;
  Reader(header)
      .Get(&request.chunk)
      .Get(&flags)
      .Get(&request.sequence)
      .Get(&request.pulled)
      .Get(&request.learning_rate)
      .Get(&request.payload_crc)
      .Get(&request.lease);
  request.push = (flags & kPush) != 0;
  request.pull = (flags & kPull) != 0;
  request.checksum = (flags & kChecksum) != 0;
  request.in_memory = (flags & kInMemory) != 0;
  request.rows = (flags & kRows) != 0;
  request.floor = (flags & kFloor) != 0;
  request.if_newer = (flags & kIfNewer) != 0;
  if ((flags & kBFloat16) != 0) request.compression = Compression::kBFloat16;
  if ((flags & kFloat16) != 0) request.compression = Compression::kFloat16;
  if (!request.push && !request.pull)
    return ConfigurationError("a request to a parameter server neither pushes nor pulls");
  if (request.rows && (request.push == request.pull || request.in_memory ||
                       request.compression != Compression::kNone))
    return ConfigurationError(
        "a request about rows pushes and pulls at once, or is compressed or in shared memory");
  if (request.if_newer && (request.push || request.rows))
    return ConfigurationError("a request that pushes, or is about rows, wants only what is newer");
  return request;
}

absl::StatusOr<Reply> DecodeReply(const FrameHeader& header) {
  MUSTER_RETURN_IF_ERROR(Check(header, FrameKind::kReply));
  Reply reply;
  uint32_t flags = 0;
  Reader(header)
      .Get(&reply.chunk)
      .Get(&flags)
      .Get(&reply.updates)
      .Get(&reply.staleness)
      .Get(&reply.payload_crc);
  reply.applied = (flags & kApplied) != 0;
  reply.refused = (flags & kRefused) != 0;
  reply.checksum = (flags & kChecksum) != 0;
  reply.same = (flags & kSame) != 0;
  return reply;
}

bool IsError(const FrameHeader& header) { return Check(header, FrameKind::kError).ok(); }

absl::Status ErrorOf(const FrameHeader& header, const std::string& message) {
  int32_t code = 0;
  Reader(header).Get(&code);
  const bool known = code > 0 && code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

}  // namespace muster::ps
