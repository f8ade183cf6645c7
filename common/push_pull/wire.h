// What workers and parameter servers say on their data connections: transport::FrameHeader with the
// kinds and bodies below, little-endian. Pure functions, no I/O; docs/parameter_server.md has the
// layout.
//
// A worker opens with kOpen and then sends requests; the server answers each one with kReply, in
// their order, or with kError, after which it closes the connection.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/transport/data_connection.h"

namespace muster::ps {

inline constexpr uint32_t kWireVersion = 1;
inline constexpr size_t kMaxErrorBytes = 4096;

enum class FrameKind : uint16_t { kOpen = 0x5001, kRequest, kReply, kError };

struct Open {
  uint64_t incarnation = 0;  // of the worker's process
  uint64_t layout = 0;       // digest of variables and layout
  uint32_t worker = 0;
};

// The payload is the gradient of a push, float32.
struct Request {
  uint32_t chunk = 0;
  bool push = false, pull = false;
  bool checksum = false;  // payloads of the request and its reply carry one
  uint64_t sequence = 0;  // of the push
  int64_t pulled = 0;     // the chunk's updates as the last pull told them
  double learning_rate = 0;
  uint32_t payload_crc = 0;
};

// The payload is the parameters of a pull, float32.
struct Reply {
  uint32_t chunk = 0;
  bool applied = false;
  bool checksum = false;
  int64_t updates = 0;    // of the chunk
  int64_t staleness = 0;  // of the push
  uint32_t payload_crc = 0;
};

transport::FrameHeader EncodeOpen(const Open& open);
transport::FrameHeader EncodeRequest(const Request& request, uint64_t payload_bytes);
transport::FrameHeader EncodeReply(const Reply& reply, uint64_t payload_bytes);
// The payload is `message`, cut to kMaxErrorBytes.
transport::FrameHeader EncodeError(const absl::Status& error, std::string* message);

// PeerLost where the header is damaged; ConfigurationError for another version or kind.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// Whether it is kError; then its code, to go with the message that follows.
bool IsError(const transport::FrameHeader& header);
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::ps
