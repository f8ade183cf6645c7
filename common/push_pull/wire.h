// The protocol between workers and parameter servers on their data connections:
// transport::FrameHeader with the kinds and bodies below. Bodies travel as they lie in memory,
// little-endian. Pure functions without I/O, except SendError. docs/parameter_server.md describes
// the layout.
//
// A worker starts with kOpen, which the server answers with kWelcome. Then the worker sends
// requests, and the server answers each with one kReply, in order. Instead of any answer the server
// may send kError, and then closes the connection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "common/transport/shared_memory.h"
#include "muster/status.h"

namespace muster::ps {

inline constexpr uint32_t kWireVersion = 7;
inline constexpr size_t kMaxErrorBytes = 4096;

enum class FrameKind : uint16_t { kOpen = 0x5001, kRequest, kReply, kError, kWelcome };

// The payload is an Offer, or empty.
struct Open {
  uint32_t version = kWireVersion;
  uint32_t worker = 0;
  uint64_t incarnation = 0;  // The incarnation of the worker's process.
  uint64_t layout = 0;       // Digest of variables and layout.
  uint64_t view = 0;
  uint32_t shard = 0;
  uint32_t reserved = 0;
};

// Memory of a worker on the server's host. Each region is as long as the shard. The server reads
// gradients from one and writes parameters to the other, at the chunk's position.
struct Offer {
  transport::SharedMemory::Place gradients, parameters;
};
static_assert(sizeof(Offer) == 64);

// The payload is a sentence that says why the offer was declined, or empty.
struct Welcome {
  uint32_t shares_memory = 0;
};

// The limit on memory that a row request, or its answer, may make either end allocate. A step needs
// less on one server.
inline constexpr uint64_t kMostRowBytes = 256ull << 20;
// The limit on chunks in one request. Fewer travel together in practice.
inline constexpr uint32_t kMostParts = 1 << 17;

// The operation on each chunk of a request. Row operations take any number of chunks of tables, the
// others take one other chunk.
enum class Operation : uint32_t {
  kPush = 1,   // The reply contains the parameters after the push.
  kPull,       // The reply contains the parameters.
  kPullNewer,  // The same, if the chunk has had more updates than `pulled`.
  kPushRows,
  kPullRows,
};
constexpr bool IsPush(Operation operation) {
  return operation == Operation::kPush || operation == Operation::kPushRows;
}
constexpr bool IsRows(Operation operation) { return operation >= Operation::kPushRows; }

// The payload of a request is its parts, then the data of each part. The data of a push is the
// gradient, unless it is in shared memory. The data of a row push is the output of PackRows. The
// data of a row pull is the keys (u64).
struct RequestPart {
  uint32_t chunk = 0;
  uint32_t count = 0;  // For rows: elements of PackRows, or keys.
  int64_t pulled = 0;  // ChunkPush::pulled, or the chunk's updates at the last pull.
  double learning_rate = 0;
};
struct Request {
  Operation operation = Operation::kPull;
  uint8_t checksum = 0;   // Data of the request and of its reply have a checksum.
  uint8_t in_memory = 0;  // Data of both is in the offered memory.
  uint8_t floor = 0;      // ChunkPush::floor.
  uint8_t reserved = 0;
  uint64_t sequence = 0;  // The number of the push.
  int64_t lease = 0;      // The lease of the pushed batch.
  // The type of the elements of both, float32 with kNone.
  Compression compression = Compression::kNone;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;  // Set by EncodeRequest.
};

// Same structure as a request. The data is parameters, unless they are in shared memory, or rows.
struct ReplyPart {
  uint32_t chunk = 0;
  uint8_t applied = 0, refused = 0;  // As in Pushed.
  uint8_t same = 0;  // For kPullNewer: the chunk has no newer updates, and there is no data.
  uint8_t reserved = 0;
  int64_t updates = 0;    // The chunk's number of updates.
  int64_t staleness = 0;  // The push's staleness.
};
struct Reply {
  uint32_t checksum = 0;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;
};
static_assert(sizeof(RequestPart) == 24 && sizeof(ReplyPart) == 24);

// The size of one element of data.
constexpr size_t BytesPerElement(Compression compression) {
  return compression == Compression::kNone ? 4 : 2;
}

// Open::layout: the number whose hex digits DigestOf returned.
uint64_t LayoutNumber(std::string_view digest);

transport::FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes = 0);
// The payload is `message`, truncated to kMaxErrorBytes.
transport::FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message);
// `data_bytes` follow the parts.
transport::FrameHeader EncodeRequest(Request request, std::span<const RequestPart> parts,
                                     uint64_t data_bytes);
transport::FrameHeader EncodeReply(Reply reply, std::span<const ReplyPart> parts,
                                   uint64_t data_bytes);
// The payload is `message`, truncated to kMaxErrorBytes.
transport::FrameHeader EncodeError(const absl::Status& error, std::string* message);
// Sends the error, with a timeout of one second, and shuts the connection down.
void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort);

// Fills the first `bytes` of `into` by receive(span). The memory grows as data arrives, so a peer
// cannot cause a large allocation only by announcing a large size.
template <typename Receive>
absl::Status TakeAsItComes(size_t bytes, std::vector<uint64_t>* into, const Receive& receive) {
  constexpr size_t kFirst = 1 << 20;
  for (size_t have = 0; have < bytes;) {
    const size_t most = std::max({kFirst, 2 * have, into->size() * sizeof(uint64_t)});
    const size_t end = std::min(bytes, most),
                 words = (end + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    if (into->size() < words) into->resize(words);
    const auto all = std::as_writable_bytes(std::span(*into));
    MUSTER_RETURN_IF_ERROR(receive(all.subspan(have, end - have)));
    have = end;
  }
  return absl::OkStatus();
}

// Returns PeerLost if the header is damaged, ConfigurationError for another version or kind.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
absl::StatusOr<Welcome> DecodeWelcome(const transport::FrameHeader& header);
// Checks that the payload has room for the parts. The payload of a row request must not exceed
// kMostRowBytes.
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// Returns PeerLost if the received parts do not match the header's checksum.
absl::Status CheckParts(std::span<const std::byte> parts, uint32_t crc);
// IsError is true for kError. ErrorOf then returns its code with the message that follows.
bool IsError(const transport::FrameHeader& header);
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::ps
