// What workers and parameter servers say on their data connections: transport::FrameHeader with the
// kinds and bodies below, which travel as they lie in memory, little-endian. Pure functions, no I/O
// but SendError; docs/parameter_server.md has the layout.
//
// A worker opens with kOpen, which the server answers with kWelcome; then it sends requests, each
// of which is answered with one kReply, in their order. Instead of any answer kError may come,
// after which the server closes the connection.
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

// The payload is an offer, or empty.
struct Open {
  uint32_t version = kWireVersion;
  uint32_t worker = 0;
  uint64_t incarnation = 0;  // of the worker's process
  uint64_t layout = 0;       // digest of variables and layout
  uint64_t view = 0;
  uint32_t shard = 0;
  uint32_t reserved = 0;
};

// Memory of a worker on the server's host, each as long as the shard: gradients are read from one,
// parameters are written to the other, at the chunk's own place.
struct Offer {
  transport::SharedMemory::Place gradients, parameters;
};
static_assert(sizeof(Offer) == 64);

// The payload is a sentence that says why the offer was not taken, or empty.
struct Welcome {
  uint32_t shares_memory = 0;
};

// More than a step has on one server: what a request about rows, or its answer, may make either end
// allocate.
inline constexpr uint64_t kMostRowBytes = 256ull << 20;
// As many as one request names of chunks: more than travel together.
inline constexpr uint32_t kMostParts = 1 << 17;

// What a request does with each chunk that it names. Those about rows name any number of chunks of
// tables, the others one other chunk.
enum class Operation : uint32_t {
  kPush = 1,   // is answered with the parameters after it
  kPull,       // likewise
  kPullNewer,  // ... if the chunk has had more updates than `pulled`
  kPushRows,
  kPullRows,
};
constexpr bool IsPush(Operation operation) {
  return operation == Operation::kPush || operation == Operation::kPushRows;
}
constexpr bool IsRows(Operation operation) { return operation >= Operation::kPushRows; }

// The payload of a request is its parts, and then the data of each: the gradient of a push, unless
// that is in shared memory; PackRows of a push of rows; the keys (u64) of a pull of rows.
struct RequestPart {
  uint32_t chunk = 0;
  uint32_t count = 0;  // of rows: elements of PackRows, or keys
  int64_t pulled = 0;  // ChunkPush's, or the updates of the chunk as of the last pull
  double learning_rate = 0;
};
struct Request {
  Operation operation = Operation::kPull;
  uint8_t checksum = 0;   // data of the request and its reply have one
  uint8_t in_memory = 0;  // both lie in the memory that was offered
  uint8_t floor = 0;      // ChunkPush's
  uint8_t reserved = 0;
  uint64_t sequence = 0;  // of the push
  int64_t lease = 0;      // whose batch is pushed
  // What the elements of both are, float32 with kNone.
  Compression compression = Compression::kNone;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;  // set by EncodeRequest
};

// As a request: the data are parameters, unless they are in shared memory, or rows.
struct ReplyPart {
  uint32_t chunk = 0;
  uint8_t applied = 0, refused = 0;  // Pushed's
  uint8_t same = 0;                  // kPullNewer: nothing is new, and there are no data
  uint8_t reserved = 0;
  int64_t updates = 0;    // of the chunk
  int64_t staleness = 0;  // of the push
};
struct Reply {
  uint32_t checksum = 0;
  uint32_t data_crc = 0;
  uint32_t parts = 0, parts_crc = 0;
};
static_assert(sizeof(RequestPart) == 24 && sizeof(ReplyPart) == 24);

// Of one element of data.
constexpr size_t BytesPerElement(Compression compression) {
  return compression == Compression::kNone ? 4 : 2;
}

// Open's `layout`: the number whose hex digits DigestOf gave.
uint64_t LayoutNumber(std::string_view digest);

transport::FrameHeader EncodeOpen(const Open& open, uint64_t payload_bytes = 0);
// The payload is `message`, cut to kMaxErrorBytes.
transport::FrameHeader EncodeWelcome(const Welcome& welcome, std::string* message);
// `data_bytes` follow the parts.
transport::FrameHeader EncodeRequest(Request request, std::span<const RequestPart> parts,
                                     uint64_t data_bytes);
transport::FrameHeader EncodeReply(Reply reply, std::span<const ReplyPart> parts,
                                   uint64_t data_bytes);
// The payload is `message`, cut to kMaxErrorBytes.
transport::FrameHeader EncodeError(const absl::Status& error, std::string* message);
// Sends it, for a second at the most, and shuts the connection down.
void SendError(const absl::Status& error, transport::DataConnection& connection,
               const transport::AbortSignal& abort);

// Fills the first `bytes` of `into` by receive(span), with memory that grows as they come: who only
// says that much will come does not get it.
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

// PeerLost where the header is damaged; ConfigurationError for another version or kind.
absl::StatusOr<Open> DecodeOpen(const transport::FrameHeader& header);
absl::StatusOr<Welcome> DecodeWelcome(const transport::FrameHeader& header);
// The payload has room for the parts; about rows it is no larger than any may be.
absl::StatusOr<Request> DecodeRequest(const transport::FrameHeader& header);
absl::StatusOr<Reply> DecodeReply(const transport::FrameHeader& header);
// PeerLost where the parts that came are not those that the header is of.
absl::Status CheckParts(std::span<const std::byte> parts, uint32_t crc);
// Whether it is kError; then its code, to go with the message that follows.
bool IsError(const transport::FrameHeader& header);
absl::Status ErrorOf(const transport::FrameHeader& header, const std::string& message);

}  // namespace muster::ps
