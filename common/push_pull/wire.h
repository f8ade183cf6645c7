// The protocol between workers and parameter servers on their data connections. Each frame starts
// with a transport::FrameHeader, which has one of the kinds and bodies below. Bodies are sent as
// they lie in memory, little-endian. docs/parameter_server.md describes the layout. All functions
// except SendError are pure.
//
// A worker starts with kOpen, and the server answers with kWelcome. Then the worker sends requests,
// and the server answers each with one kReply, in order. The server may send kError in place of any
// answer. It then closes the connection.
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

namespace muster::push_pull {

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

// Two regions of memory that a worker offers to a server on its host. Each region is as long as the
// shard, and each chunk has its position in it. The server reads gradients from one region and
// writes parameters to the other.
struct Offer {
  transport::SharedMemory::Place gradients, parameters;
};
static_assert(sizeof(Offer) == 64);

// The payload is a sentence that says why the offer was declined, or empty.
struct Welcome {
  uint32_t shares_memory = 0;
};

// The maximum memory that a row request or its answer may make one end allocate. A step needs less
// than this on one server.
inline constexpr uint64_t kMaxRowBytes = 256ull << 20;
// The maximum number of chunks in one request. Workers send fewer in practice.
inline constexpr uint32_t kMaxParts = 1 << 17;

// The operation on each chunk of a request. A row operation has any number of chunks, all of
// tables. Any other operation has one chunk that is not of a table.
enum class Operation : uint32_t {
  kPush = 1,  // The reply contains the parameters after the push.
  kPull,      // The reply contains the parameters.
  // The reply contains the parameters if the chunk has had more updates than `pulled`.
  kPullNewer,
  kPushRows,
  kPullRows,
};
constexpr bool IsPush(Operation operation) {
  return operation == Operation::kPush || operation == Operation::kPushRows;
}
constexpr bool IsRows(Operation operation) { return operation >= Operation::kPushRows; }

// One chunk of a request. The payload of a request has all parts first, then the data of each part.
// The data of kPush is the gradient, unless it is in shared memory. The data of kPushRows is the
// output of PackRows. The data of kPullRows is the keys (u64).
struct RequestPart {
  uint32_t chunk = 0;
  uint32_t count = 0;  // For kPushRows: elements of PackRows. For kPullRows: keys.
  int64_t pulled = 0;  // ChunkPush::pulled. For kPullNewer: the chunk's updates at the last pull.
  double learning_rate = 0;
};
struct Request {
  Operation operation = Operation::kPull;
  uint8_t checksum = 0;   // The data of the request and of its reply have a checksum.
  uint8_t in_memory = 0;  // The data of the request and of its reply is in the offered memory.
  uint8_t floor = 0;      // ChunkPush::floor.
  uint8_t reserved = 0;
  uint64_t sequence = 0;  // The number of the push.
  int64_t lease = 0;      // The lease of the pushed batch.
  // The type of the elements in the request and its reply. kNone: float32.
  Compression compression = Compression::kNone;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;  // Set by EncodeRequest.
};

// One chunk of a reply. The payload of a reply has the same structure as that of a request. The
// data is the chunk's parameters, unless they are in shared memory, or the rows.
struct ReplyPart {
  uint32_t chunk = 0;
  uint8_t applied = 0, refused = 0;  // As in Pushed.
  uint8_t same = 0;  // For kPullNewer: the chunk has no newer updates. The part has no data.
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

// Returns the value of Open::layout for a result of DigestOf, which is that number in hex digits.
uint64_t LayoutNumber(std::string_view digest);

transport::FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes = 0);
// Truncates `message`, the payload, to kMaxErrorBytes.
transport::FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message);
// `data_bytes` is the size of the payload after the parts.
transport::FrameHeader EncodeRequest(Request request, std::span<const RequestPart> parts,
                                     uint64_t data_bytes);
transport::FrameHeader EncodeReply(Reply reply, std::span<const ReplyPart> parts,
                                   uint64_t data_bytes);
// Sets `message`, the payload, to the error's message, truncated to kMaxErrorBytes.
transport::FrameHeader EncodeError(const absl::Status& error, std::string* message);
// Sends the error, with a timeout of one second, and shuts the connection down.
void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort);

// Fills the first `bytes` of `into` with calls of receive(span). `into` grows as data arrives, so a
// peer that only announces a large size does not cause a large allocation.
template <typename Receive>
absl::Status ReceiveInPieces(size_t bytes, std::vector<uint64_t>* into, const Receive& receive) {
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

// The Decode functions return PeerLost if the header is damaged, and ConfigurationError if it has
// another version or kind.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
absl::StatusOr<Welcome> DecodeWelcome(const transport::FrameHeader& header);
// Also checks that the payload has room for the parts, and that the payload of a row request does
// not exceed kMaxRowBytes.
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// Returns PeerLost if the received parts do not match the header's checksum.
absl::Status CheckParts(std::span<const std::byte> parts, uint32_t crc);
// Returns whether the frame is a kError. ErrorOf returns its code with `message`, the payload.
bool IsError(const transport::FrameHeader& header);
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::push_pull
