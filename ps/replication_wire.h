// What a primary says to its backup: transport::FrameHeader with the kinds and bodies below,
// little-endian. Pure functions, no I/O; docs/parameter_server.md has the layout.
//
// The primary opens with kOpen, which the backup answers with kWelcome; then it sends what it has,
// and a kAck now and then tells how much of it was taken. Instead of any answer wire.h's kError may
// come, after which the connection is closed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/options.h"
#include "common/transport/data_connection.h"
#include "ps/dense_store.h"

namespace muster::ps {

// A primary's `from` in the hello, plus its task: no worker has such a number.
inline constexpr int kReplicaFrom = 1 << 30;
// PermissionDenied where its certificate does not name the task that its hello does: a primary is a
// parameter server, the others are workers. Without security all may come.
absl::Status CheckWhoCame(const transport::ConnectionInfo& info);

enum class ReplicaKind : uint16_t { kOpen = 0x5010, kWelcome, kUpdate, kState, kSynced, kAck };

struct ReplicaFrame {
  uint32_t shard = 0;     // kOpen
  uint64_t layout = 0;    // kOpen: digest of variables and layout
  uint32_t chunk = 0;     // kUpdate, kState
  bool more = false;      // kState: rows of this state follow, in frames of their own
  uint64_t taken = 0;     // kAck: frames behind kOpen, on this connection
  bool checksum = false;  // the payload carries one
  uint32_t payload_crc = 0;
};
transport::FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame,
                                     uint64_t payload_bytes);
// PeerLost where the header is damaged; ConfigurationError for another version or what is no such
// frame.
absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(
    const transport::FrameHeader& header);

// Payload of kUpdate: this, then the gradient: of rows their keys, as PackRows has them, and then
// all numbers, with compression in 16 bits.
struct UpdateHead {
  uint64_t incarnation = 0, sequence = 0;
  int64_t number = 0;  // of the chunk's updates
  double learning_rate = 0;
  uint32_t worker = 0;
  uint32_t flags = 0;  // 1: ChunkPush::floor; 2: bfloat16; 4: float16
};
static_assert(sizeof(UpdateHead) == 40);
UpdateHead HeadOf(const ChunkPush& push, int64_t number, Compression compression);
// The gradient that follows the head, of rows of that width (0: of no table), as Push has it:
// there, or, where it was compressed, in `memory`. PeerLost where the size does not fit.
absl::StatusOr<std::span<const float>> GradientOf(const UpdateHead& head, size_t width,
                                                  std::span<const char> bytes,
                                                  std::vector<float>* memory);

// Payload of kState: all of it, or some of its rows. Each vector comes with its length: rows and
// their slots differ in it.
std::string EncodeState(const ChunkState& state);
// PeerLost where sizes do not fit together.
absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload);
// Payload of kWelcome: of all chunks.
std::string EncodeStandings(const std::vector<DenseStore::Standing>& standings);
absl::StatusOr<std::vector<DenseStore::Standing>> DecodeStandings(std::span<const char> payload);

}  // namespace muster::ps
