// The protocol between a primary and its backup. Each frame starts with a transport::FrameHeader,
// which has one of the kinds and bodies below, little-endian. All functions are pure.
// docs/parameter_server.md describes the layout.
//
// The primary starts with kOpen, and the backup replies with kWelcome. Then the primary sends
// kUpdate, kState and kSynced. The backup sometimes sends a kAck with the number of received
// frames. The backup may send kError (common/push_pull/wire.h) in place of any reply. It then
// closes the connection.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "ps/shard_store.h"

namespace muster::ps {

// A primary's `from` in the hello is this number plus the index of its ps task. No worker has such
// a number.
inline constexpr int kReplicaFrom = 1 << 30;
// Returns PermissionDenied if the peer's certificate does not name the task of its hello. That task
// is a ps task for a primary, and a worker otherwise. Returns OK for all peers without security.
absl::Status CheckPeer(const transport::ConnectionInfo& info);

enum class ReplicaKind : uint16_t { kOpen = 0x5010, kWelcome, kUpdate, kState, kSynced, kAck };

struct ReplicaFrame {
  uint32_t shard = 0;     // For kOpen.
  uint64_t layout = 0;    // For kOpen: the digest of variables and layout.
  uint32_t chunk = 0;     // For kUpdate and kState.
  bool more = false;      // For kState: further frames have more rows of this state.
  uint64_t taken = 0;     // For kAck: the frames received on this connection after kOpen.
  bool checksum = false;  // The payload has a checksum.
  uint32_t payload_crc = 0;
};
transport::FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame,
                                     uint64_t payload_bytes);
// Returns PeerLost for a damaged header, and ConfigurationError for another version or a kind that
// is not a ReplicaKind.
absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(
    const transport::FrameHeader& header);

// The payload of kUpdate is this head and then the gradient. A gradient of rows has the format of
// PackRows: keys, then numbers. With compression, numbers have 16 bits.
struct UpdateHead {
  uint64_t incarnation = 0, sequence = 0;
  int64_t number = 0;  // The update's number among the chunk's updates.
  double learning_rate = 0;
  uint32_t worker = 0;
  uint32_t flags = 0;  // 1: ChunkPush::floor; 2: bfloat16; 4: float16.
};
static_assert(sizeof(UpdateHead) == 40);
UpdateHead HeadOf(const push_pull::ChunkPush& push, int64_t number,
                  push_pull::Compression compression);
// Returns the gradient in `bytes`, the payload after the head, in the format of ChunkPush. `width`
// is the width of a row, 0 for a chunk that is not of a table. The result points to `memory` if the
// gradient was compressed, else to `bytes`. Returns PeerLost if the size is invalid.
absl::StatusOr<std::span<const float>> GradientOf(const UpdateHead& head, size_t width,
                                                  std::span<const char> bytes,
                                                  std::vector<float>* memory);

// Returns the payload of kState: the whole state or some of its rows. Each vector is preceded by
// its length, because the vectors of rows and of slots have different lengths.
std::string EncodeState(const ChunkState& state);
// Returns PeerLost if the sizes are inconsistent.
absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload);
// Returns the payload of kWelcome: the ChunkVersion of every chunk.
std::string EncodeVersions(const std::vector<ShardStore::ChunkVersion>& versions);
absl::StatusOr<std::vector<ShardStore::ChunkVersion>> DecodeVersions(std::span<const char> payload);

}  // namespace muster::ps
