// The protocol between workers and parameter servers on their data connections. A frame is a
// transport::FrameHeader, followed by a payload. The header contains a kind (FrameKind) and a body.
// Except for kError, the body is one of the structs Open, Welcome, Request and Reply. The body of
// kError is the status code, an int32_t. Bodies are sent in their memory layout, little-endian.
// docs/parameter_server.md describes the bytes of a frame. All functions except SendError are pure.
//
// The first frame of a worker is kOpen, and the server answers with kWelcome. After kWelcome, the
// worker sends requests. The server answers each request with one kReply, in order. Instead of any
// answer, the server may send kError and close the connection.
//
// A shard is the part of all variables that one server holds. A chunk is a part of a shard
// (layout.h). A view assigns each shard to a ps task (client.h).
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

// The body of kOpen. The payload is an Offer, or empty.
struct Open {
  uint32_t version = kWireVersion;
  uint32_t worker = 0;       // The index of the worker.
  uint64_t incarnation = 0;  // A random number that identifies the worker's process.
  uint64_t layout = 0;       // The result of LayoutNumber.
  uint64_t view = 0;         // The number of the view in which the worker connects.
  uint32_t shard = 0;
  uint32_t reserved = 0;
};

// Two memory regions that a worker offers to a server on the same host. Each region has the size of
// the shard. A chunk has the same position in a region as in the shard. The server reads gradients
// from one region, and writes parameters to the other.
struct Offer {
  transport::SharedMemory::Place gradients, parameters;
};
static_assert(sizeof(Offer) == 64);

// The body of kWelcome. If the server declined the offer, the payload is the reason. Otherwise the
// payload is empty.
struct Welcome {
  uint32_t shares_memory = 0;  // 1: the server has accepted the offer.
};

// The maximum number of bytes in the payload of a row request, and in the payload of its reply. A
// server refuses larger requests. A training step transfers fewer bytes from and to one server.
inline constexpr uint64_t kMaxRowBytes = 256ull << 20;
// The maximum number of chunks in one request. Workers send fewer chunks.
inline constexpr uint32_t kMaxParts = 1 << 17;

// The operation on each chunk of a request. A request with a row operation has one or more chunks,
// all of embedding tables. A request with any other operation has one chunk, which does not belong
// to a table.
enum class Operation : uint32_t {
  kPush = 1,  // Pushes a gradient. The reply contains the new parameters.
  kPull,      // The reply contains the parameters.
  // The reply contains the parameters if the chunk has had more updates than RequestPart::pulled.
  kPullNewer,
  kPushRows,  // Pushes the gradients of rows.
  kPullRows,  // The reply contains the rows of the keys in the request.
};
constexpr bool IsPush(Operation operation) {
  return operation == Operation::kPush || operation == Operation::kPushRows;
}
constexpr bool IsRows(Operation operation) { return operation >= Operation::kPushRows; }

// One chunk of a request. The payload of a request is the RequestParts of all chunks, followed by
// the data of all chunks. The data depends on the operation:
// - kPush: the gradient. No data if the gradient is in shared memory.
// - kPushRows: the output of PackRows.
// - kPullRows: the keys (uint64_t).
struct RequestPart {
  uint32_t chunk = 0;
  // For kPushRows, the number of elements of the data. For kPullRows, the number of keys.
  uint32_t count = 0;
  // For a push, ChunkPush::pulled. For kPullNewer, the chunk's number of updates at the last pull.
  int64_t pulled = 0;
  double learning_rate = 0;
};
// The body of kRequest.
struct Request {
  Operation operation = Operation::kPull;
  uint8_t checksum = 0;   // 1: the data of the request and of the reply have a checksum.
  uint8_t in_memory = 0;  // 1: the data of the request and of the reply are in the shared memory.
  uint8_t floor = 0;      // ChunkPush::floor.
  uint8_t reserved = 0;
  uint64_t sequence = 0;  // PushKey::sequence.
  int64_t lease = 0;      // PushKey::lease.
  // The type of the elements in the request and the reply. kNone: float32.
  Compression compression = Compression::kNone;
  uint32_t data_crc = 0;              // The CRC-32C of the data, if `checksum` is 1.
  uint32_t parts = 0, parts_crc = 0;  // The number and the CRC-32C of the parts.
};

// One chunk of a reply. The payload of a reply is the ReplyParts of all chunks, followed by the
// data of all chunks. The data is the chunk's rows or parameters. Parameters in shared memory are
// not in the payload.
struct ReplyPart {
  uint32_t chunk = 0;
  uint8_t applied = 0, refused = 0;  // As in Pushed.
  // For kPullNewer. 1: the chunk has had no updates since RequestPart::pulled, and the part has no
  // data.
  uint8_t same = 0;
  uint8_t reserved = 0;
  int64_t updates = 0;    // The chunk's number of updates.
  int64_t staleness = 0;  // Pushed::staleness.
};
// The body of kReply. The fields have the same meaning as in Request.
struct Reply {
  uint32_t checksum = 0;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;
};
static_assert(sizeof(RequestPart) == 24 && sizeof(ReplyPart) == 24);

// Returns the size of one element.
constexpr size_t BytesPerElement(Compression compression) {
  return compression == Compression::kNone ? 4 : 2;
}

// If `digest` is a number in hex digits, as from DigestOf, returns this number. Otherwise returns a
// hash of `digest`.
uint64_t LayoutNumber(std::string_view digest);

transport::FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes);
// `message` is the payload. Truncates `message` to kMaxErrorBytes.
transport::FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message);
// EncodeRequest and EncodeReply set the number and the checksum of the parts. `data_bytes` is the
// size of the payload after the parts.
transport::FrameHeader EncodeRequest(Request request, std::span<const RequestPart> parts,
                                     uint64_t data_bytes);
transport::FrameHeader EncodeReply(Reply reply, std::span<const ReplyPart> parts,
                                   uint64_t data_bytes);
// Sends a kError and shuts the connection down. Blocks for at most one second.
void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort);

// Receives `bytes` bytes into `*into`, with one or more calls of receive(span). `*into` grows as
// data arrives. Therefore, a peer that announces a large size and sends no data causes no large
// allocation.
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

// The Decode functions return PeerLost for a damaged header or an oversized Welcome payload. They
// return ConfigurationError for a different version or kind, or an invalid body or payload size.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
absl::StatusOr<Welcome> DecodeWelcome(const transport::FrameHeader& header);
// If DecodeRequest returns OK, the announced payload is at least as large as the parts, and the
// payload of a row request has at most kMaxRowBytes.
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// Returns PeerLost if the received parts do not match the header's checksum.
absl::Status CheckParts(std::span<const std::byte> parts, uint32_t crc);
// Returns true if the frame is a kError.
bool IsError(const transport::FrameHeader& header);
// Returns the error of a kError. `message` is the payload.
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::push_pull
