// The messages from a primary to its backup: transport::FrameHeader with the kinds and bodies
// below, little-endian. Pure functions, no I/O. See docs/parameter_server.md for the layout.
//
// The primary opens with kOpen, and the backup replies with kWelcome. Then the primary sends
// frames, and the backup sends a kAck from time to time with the number of received frames. kError
// of wire.h may replace any reply; the connection is then closed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "ps/shard_store.h"

namespace muster::ps {

// Added to a primary's task to make its `from` in the hello. No worker has such a number.
inline constexpr int kReplicaFrom = 1 << 30;
// PermissionDenied where its certificate does not name the task that its hello does: a primary is a
// parameter server, the others are workers. Without security all may come.
absl::Status CheckWhoCame(const transport::ConnectionInfo& info);

enum class ReplicaKind : uint16_t { kOpen = 0x5010, kWelcome, kUpdate, kState, kSynced, kAck };

struct ReplicaFrame {
  uint32_t shard = 0;     // Used by kOpen.
  uint64_t layout = 0;    // kOpen: digest of variables and layout.
  uint32_t chunk = 0;     // Used by kUpdate and kState.
  bool more = false;      // kState: more rows of this state follow, in further frames.
  uint64_t taken = 0;     // kAck: number of received frames after kOpen, on this connection.
  bool checksum = false;  // The payload has a checksum.
  uint32_t payload_crc = 0;
};
transport::FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame,
                                     uint64_t payload_bytes);
// Returns PeerLost for a damaged header, ConfigurationError for another version or another kind of
// frame.
absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(
    const transport::FrameHeader& header);

// Payload of kUpdate: this head, then the gradient. A gradient of rows has their keys first, as in
// PackRows, and then all numbers. With compression, numbers have 16 bits.
struct UpdateHead {
  uint64_t incarnation = 0, sequence = 0;
  int64_t number = 0;  // The update's number in the chunk.
  double learning_rate = 0;
  uint32_t worker = 0;
  uint32_t flags = 0;  // 1: ChunkPush::floor; 2: bfloat16; 4: float16.
};
static_assert(sizeof(UpdateHead) == 40);
UpdateHead HeadOf(const ChunkPush& push, int64_t number, Compression compression);
// Returns the gradient after the head, as in Push. `width` is that of a row, 0 for a chunk that is
// not of a table. The result points to `bytes` or, if it was compressed, to `memory`. Returns
// PeerLost if the size is invalid.
absl::StatusOr<std::span<const float>> GradientOf(const UpdateHead& head, size_t width,
                                                  std::span<const char> bytes,
                                                  std::vector<float>* memory);

// Payload of kState: the whole state or some of its rows. Each vector is preceded by its length,
// because rows and their slots differ in it.
std::string EncodeState(const ChunkState& state);
// Returns PeerLost if the sizes are inconsistent.
absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload);
// Payload of kWelcome, for all chunks.
std::string EncodeStandings(const std::vector<ShardStore::Standing>& standings);
absl::StatusOr<std::vector<ShardStore::Standing>> DecodeStandings(std::span<const char> payload);

}  // namespace muster::ps
