#include "common/push_pull/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/base/crc32c.h"

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

enum Flags : uint32_t { kPush = 1, kPull = 2, kChecksum = 4, kApplied = 8 };

}  // namespace

FrameHeader EncodeOpen(const Open& open) {
  return Writer(FrameKind::kOpen, 0)
      .Put(kWireVersion)
      .Put(open.worker)
      .Put(open.incarnation)
      .Put(open.layout)
      .Done();
}

FrameHeader EncodeRequest(const Request& request, uint64_t payload_bytes) {
  const uint32_t flags = (request.push ? kPush : 0u) | (request.pull ? kPull : 0u) |
                         (request.checksum ? kChecksum : 0u);
  return Writer(FrameKind::kRequest, payload_bytes)
      .Put(request.chunk)
      .Put(flags)
      .Put(request.sequence)
      .Put(request.pulled)
      .Put(request.learning_rate)
      .Put(request.payload_crc)
      .Done();
}

FrameHeader EncodeReply(const Reply& reply, uint64_t payload_bytes) {
  const uint32_t flags = (reply.applied ? kApplied : 0u) | (reply.checksum ? kChecksum : 0u);
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

absl::StatusOr<Open> DecodeOpen(const FrameHeader& header) {
  MUSTER_RETURN_IF_ERROR(Check(header, FrameKind::kOpen));
  Open open;
  uint32_t version = 0;
  Reader(header).Get(&version).Get(&open.worker).Get(&open.incarnation).Get(&open.layout);
  if (version != kWireVersion)
    return ConfigurationError(
        fmt::format("a worker speaks version {} of the parameter servers' protocol, this one {}: "
                    "start all tasks from one version of Muster",
                    version, kWireVersion));
  if (header.payload_bytes != 0)
    return PeerLost("a worker's first frame has a payload, where none belongs");
  return open;
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
      .Get(&request.payload_crc);
  request.push = (flags & kPush) != 0;
  request.pull = (flags & kPull) != 0;
  request.checksum = (flags & kChecksum) != 0;
  if (!request.push && !request.pull)
    return ConfigurationError("a request to a parameter server neither pushes nor pulls");
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
  reply.checksum = (flags & kChecksum) != 0;
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
