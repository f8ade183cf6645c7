// What workers and parameter servers say on their data connections: transport::FrameHeader with the
// kinds and bodies below, little-endian. Pure functions, no I/O but SendError;
// docs/parameter_server.md has the layout.
//
// A worker opens with kOpen, which the server answers with kWelcome; then it sends requests, each
// of which is answered with kReply, in their order. Instead of any answer kError may come, after
// which the server closes the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "common/transport/shared_memory.h"
#include "muster/status.h"

namespace muster::ps {

inline constexpr uint32_t kWireVersion = 7;
inline constexpr size_t kMaxErrorBytes = 4096;

enum class FrameKind : uint16_t { kOpen = 0x5001, kRequest, kReply, kError, kWelcome };

// The payload is an offer, or empty.
struct Open {
  uint64_t incarnation = 0;  // of the worker's process
  uint64_t layout = 0;       // digest of variables and layout
  uint64_t view = 0;
  uint32_t worker = 0;
  uint32_t shard = 0;
};

// Memory of a worker on the server's host, each as long as the shard: gradients are read from one,
// parameters are written to the other, at the chunk's own place.
struct Offer {
  transport::SharedMemory::Place gradients, parameters;
};
inline constexpr size_t kOfferBytes = 64;

// The payload is a sentence that says why the offer was not taken, or empty.
struct Welcome {
  bool shares_memory = false;
};

// More than a step has in one chunk: what a request about rows may make the server allocate.
inline constexpr uint64_t kMostRowBytes = 256ull << 20;

// The payload is the gradient of a push, unless it is in shared memory. About a chunk of a table: a
// push has PackRows as its payload, a pull the keys (u64), and is answered with their rows.
struct Request {
  uint32_t chunk = 0;
  bool push = false, pull = false;
  bool checksum = false;   // payloads of the request and its reply carry one
  bool in_memory = false;  // both lie in the memory that was offered
  bool rows = false;       // about rows by key: either push or pull, float32, not in memory
  bool floor = false;      // DenseStore::Push's
  bool if_newer = false;   // of a pull alone: no parameters where `pulled` are the chunk's updates
  // What the elements of both payloads are, float32 with kNone.
  Compression compression = Compression::kNone;
  uint64_t sequence = 0;  // of the push
  int64_t lease = 0;      // whose batch is pushed
  int64_t pulled = 0;     // the chunk's updates as the last pull told them
  double learning_rate = 0;
  uint32_t payload_crc = 0;
};

// The payload is the parameters of a pull, unless they are in shared memory.
struct Reply {
  uint32_t chunk = 0;
  bool applied = false;
  bool checksum = false;
  bool same = false;      // if_newer: nothing is new, and there is no payload
  int64_t updates = 0;    // of the chunk
  int64_t staleness = 0;  // of the push
  uint32_t payload_crc = 0;
  bool refused = false;  // Pushed's
};

// Of one element of a payload.
constexpr size_t BytesPerElement(Compression compression) {
  return compression == Compression::kNone ? 4 : 2;
}

// Open's `layout`: the number whose hex digits DigestOf gave.
uint64_t LayoutNumber(std::string_view digest);

transport::FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes = 0);
std::string EncodeOffer(const Offer& offer);
// The payload is `message`, cut to kMaxErrorBytes.
transport::FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message);
transport::FrameHeader EncodeRequest(const Request& request, uint64_t payload_bytes);
transport::FrameHeader EncodeReply(const Reply& reply, uint64_t payload_bytes);
// The payload is `message`, cut to kMaxErrorBytes.
transport::FrameHeader EncodeError(const absl::Status& error, std::string* message);
// Tells it, for a second at the most, and shuts the connection down.
void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort);

// PeerLost where the header is damaged; ConfigurationError for another version or kind.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
Offer DecodeOffer(std::span<const char, kOfferBytes> payload);
absl::StatusOr<Welcome> DecodeWelcome(const transport::FrameHeader& header);
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// Whether it is kError; then its code, to go with the message that follows.
bool IsError(const transport::FrameHeader& header);
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::ps
