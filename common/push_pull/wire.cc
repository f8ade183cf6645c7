#include "common/push_pull/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>

#include "common/base/files/crc32c.h"
#include "common/base/hash.h"

namespace muster::push_pull {
namespace {

using transport::FrameHeader;

// The last four bytes of a body are the checksum of the bytes before them.
constexpr size_t kCrcAt = sizeof(FrameHeader::body) - sizeof(uint32_t);

uint32_t CrcOf(const FrameHeader& header) {
  return Crc32c({reinterpret_cast<const char*>(&header), sizeof header - sizeof(uint32_t)});
}

template <typename Body>
FrameHeader Encode(FrameKind kind, const Body& body, uint64_t payload_bytes) {
  static_assert(std::has_unique_object_representations_v<Body> && sizeof body <= kCrcAt);
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.payload_bytes = payload_bytes;
  std::memcpy(header.body, &body, sizeof body);
  const uint32_t crc = CrcOf(header);
  std::memcpy(header.body + kCrcAt, &crc, sizeof crc);
  return header;
}

template <typename Body>
absl::StatusOr<Body> Decode(FrameKind kind, const FrameHeader& header) {
  uint32_t crc = 0;
  std::memcpy(&crc, header.body + kCrcAt, sizeof crc);
  if (header.magic != FrameHeader::kMagic || crc != CrcOf(header))
    return PeerLost("a frame on a parameter server's connection is damaged");
  if (header.kind != static_cast<uint16_t>(kind))
    return ConfigurationError(fmt::format(
        "a frame of kind {:#x} came on a parameter server's connection, where {:#x} belongs",
        header.kind, static_cast<uint16_t>(kind)));
  Body body;
  std::memcpy(&body, header.body, sizeof body);
  return body;
}

// Sets `message` to the payload: the error's message, truncated to kMaxErrorBytes.
FrameHeader EncodeError(const absl::Status& error, std::string* message) {
  *message = std::string(Message(error)).substr(0, kMaxErrorBytes);
  return Encode(FrameKind::kError, static_cast<int32_t>(error.code()), message->size());
}

}  // namespace

uint64_t LayoutNumber(std::string_view digest) {
  uint64_t number = 0;
  const char* const end = digest.data() + digest.size();
  const auto [at, error] = std::from_chars(digest.data(), end, number, 16);
  return error == std::errc() && at == end ? number : Fnv1a(digest);
}

FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes) {
  return Encode(FrameKind::kOpen, open, payload_bytes);
}

FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message) {
  message->resize(std::min(message->size(), kMaxErrorBytes));
  return Encode(FrameKind::kWelcome, welcome, message->size());
}

FrameHeader EncodeRequest(Request request, std::span<const RequestPart> parts,
                          uint64_t data_bytes) {
  request.parts = static_cast<uint32_t>(parts.size());
  request.parts_crc = Crc32c(std::as_bytes(parts));
  return Encode(FrameKind::kRequest, request, parts.size_bytes() + data_bytes);
}

FrameHeader EncodeReply(Reply reply, std::span<const ReplyPart> parts, uint64_t data_bytes) {
  reply.parts = static_cast<uint32_t>(parts.size());
  reply.parts_crc = Crc32c(std::as_bytes(parts));
  return Encode(FrameKind::kReply, reply, parts.size_bytes() + data_bytes);
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
  MUSTER_ASSIGN_OR_RETURN(const Open open, Decode<Open>(FrameKind::kOpen, header));
  if (open.version != kWireVersion)
    return ConfigurationError(
        fmt::format("a worker speaks version {} of the parameter servers' protocol, this one {}: "
                    "start all tasks from one version of Muster",
                    open.version, kWireVersion));
  if (header.payload_bytes != 0 && header.payload_bytes != sizeof(Offer))
    return ConfigurationError(
        fmt::format("a worker's first frame has a payload of {} bytes, not {}",
                    header.payload_bytes, sizeof(Offer)));
  return open;
}

absl::StatusOr<Welcome> DecodeWelcome(const FrameHeader& header) {
  MUSTER_ASSIGN_OR_RETURN(const Welcome welcome, Decode<Welcome>(FrameKind::kWelcome, header));
  if (header.payload_bytes > kMaxErrorBytes)
    return PeerLost("a parameter server's welcome is longer than any");
  return welcome;
}

absl::StatusOr<Request> DecodeRequest(const FrameHeader& header) {
  MUSTER_ASSIGN_OR_RETURN(const Request request, Decode<Request>(FrameKind::kRequest, header));
  if (request.operation < Operation::kPush || request.operation > Operation::kPullRows ||
      request.compression < Compression::kNone || request.compression > Compression::kFloat16)
    return ConfigurationError(fmt::format(
        "a request asks a parameter server for operation {} with compression {}",
        static_cast<uint32_t>(request.operation), static_cast<int>(request.compression)));
  const bool rows = IsRows(request.operation);
  if (rows + (request.in_memory != 0) + (request.compression != Compression::kNone) > 1)
    return ConfigurationError(
        "a request is about rows, in shared memory, or compressed: more than one of these");
  if (request.parts == 0 || request.parts > kMaxParts || (!rows && request.parts != 1) ||
      request.parts * sizeof(RequestPart) > header.payload_bytes ||
      (rows && header.payload_bytes > kMaxRowBytes))
    return ConfigurationError(fmt::format("a request about {} chunks has a payload of {} bytes",
                                          request.parts, header.payload_bytes));
  return request;
}

absl::StatusOr<Reply> DecodeReply(const FrameHeader& header) {
  return Decode<Reply>(FrameKind::kReply, header);
}

absl::Status CheckParts(std::span<const std::byte> parts, uint32_t crc) {
  if (Crc32c(parts) == crc) return absl::OkStatus();
  return PeerLost("a frame on a parameter server's connection is damaged");
}

bool IsError(const FrameHeader& header) { return Decode<int32_t>(FrameKind::kError, header).ok(); }

absl::Status ErrorOf(const FrameHeader& header, const std::string& message) {
  const int32_t code = Decode<int32_t>(FrameKind::kError, header).value_or(0);
  const bool known = code > 0 && code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

}  // namespace muster::push_pull
