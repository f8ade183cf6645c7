// The protocol between the primary of a shard and its backup (see replication.h). Each frame starts
// with a transport::FrameHeader, whose kind is a ReplicaKind and whose body encodes a ReplicaFrame.
// Numbers are little-endian. docs/parameter_server.md describes the layout. All functions are pure.
//
// The primary starts with kOpen, and the backup replies with kWelcome. Then the primary sends any
// number of kUpdate, kState and kSynced frames. The backup sends kAck from time to time, with the
// number of received frames. The backup may send kError (common/push_pull/wire.h) at any time, and
// then closes the connection.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "ps/shard_store.h"

namespace muster::ps {

// A primary's Hello::from is this number plus the index of the primary's ps task. The Hello::from
// of a worker is the worker's index, which is lower.
inline constexpr int kReplicaFrom = 1 << 30;
// Returns PermissionDenied if the peer's certificate names another task than Hello::from. Returns
// OK on connections without certificates.
absl::Status CheckPeer(const transport::ConnectionInfo& info);

// The kinds of frames:
// - kOpen: begins a connection. No payload.
// - kWelcome: for each chunk, the number of updates that the backup has.
// - kUpdate: one update of a chunk.
// - kState: the state of a chunk, or a part of the state.
// - kSynced: tells the backup that the backup has every update that the primary has acknowledged to
//   a worker. No payload.
// - kAck: acknowledges frames of the primary. No payload.
enum class ReplicaKind : uint16_t { kOpen = 0x5010, kWelcome, kUpdate, kState, kSynced, kAck };

struct ReplicaFrame {
  uint32_t shard = 0;        // For kOpen.
  uint64_t layout = 0;       // For kOpen: the digest of variables and layout.
  uint32_t chunk = 0;        // For kUpdate and kState.
  bool more = false;         // For kState: true if more rows follow in the chunk's next frame.
  uint64_t taken = 0;        // For kAck: the number of frames received after kOpen.
  bool checksum = false;     // True if payload_crc is set.
  uint32_t payload_crc = 0;  // CRC-32C of the payload.
};
transport::FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame,
                                     uint64_t payload_bytes);
// Returns PeerLost for a damaged header, and ConfigurationError for another version or a kind that
// is not a ReplicaKind.
absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(
    const transport::FrameHeader& header);

// The payload of kUpdate is an UpdateHead and then the gradient. The gradient of rows of an
// embedding table has the format of push_pull::PackRows: all keys, then all numbers. With
// compression, the numbers have 16 bits.
struct UpdateHead {
  uint64_t incarnation = 0, sequence = 0;  // As in push_pull::PushKey.
  int64_t number = 0;                      // The update's number in the chunk, counted from 1.
  double learning_rate = 0;
  uint32_t worker = 0;  // The index of the worker.
  // The sum of these: 1 for ChunkPush::floor, 2 for a bfloat16 gradient, 4 for a float16 gradient.
  uint32_t flags = 0;
};
static_assert(sizeof(UpdateHead) == 40);
UpdateHead HeadOf(const push_pull::ChunkPush& push, int64_t number,
                  push_pull::Compression compression);
// Returns the gradient in the format of ChunkPush::gradient. `bytes` is the payload without the
// UpdateHead. `width` is the number of elements of a row, or 0 for a dense chunk. A compressed
// gradient is decompressed to `*memory`, and the result points to `*memory`. Otherwise the result
// points to `bytes`. Returns PeerLost if the size of `bytes` is invalid.
absl::StatusOr<std::span<const float>> GradientOf(const UpdateHead& head, size_t width,
                                                  std::span<const char> bytes,
                                                  std::vector<float>* memory);

// Returns the payload of kState: a whole state, or a state with some of its rows. The length of
// each vector precedes the vector.
std::string EncodeState(const ChunkState& state);
// Returns PeerLost if the sizes are inconsistent.
absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload);
// Returns the payload of kWelcome: the ChunkVersion of every chunk.
std::string EncodeVersions(const std::vector<ShardStore::ChunkVersion>& versions);
absl::StatusOr<std::vector<ShardStore::ChunkVersion>> DecodeVersions(std::span<const char> payload);

}  // namespace muster::ps
