// What a primary says to its backup: transport::FrameHeader with the kinds and bodies below,
// little-endian. Pure functions, no I/O; docs/parameter_server.md has the layout.
//
// The primary opens with kOpen, which the backup answers with kWelcome; everything else is answered
// with kAck. Instead of any answer wire.h's kError may come, after which the connection is closed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/transport/data_connection.h"
#include "ps/dense_store.h"

namespace muster::ps {

// A primary's `from` in the hello, plus its task: no worker has such a number.
inline constexpr int kReplicaFrom = 1 << 30;

enum class ReplicaKind : uint16_t { kOpen = 0x5010, kWelcome, kUpdate, kState, kSynced, kAck };

struct ReplicaFrame {
  uint32_t shard = 0;     // kOpen
  uint64_t layout = 0;    // kOpen: digest of variables and layout
  bool standing = false;  // kOpen: the answer tells what the backup holds
  uint32_t chunk = 0;     // all others but kSynced
  uint32_t handover = 0;  // kState: which one of this chunk in this view; kUpdate: which it follows
  bool more = false;      // kState: rows of this state follow, in frames with the same `handover`
  bool stale = false;     // kAck: that state was replaced by a later one
  bool checksum = false;  // the payload carries one
  uint32_t payload_crc = 0;
};
transport::FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame,
                                     uint64_t payload_bytes);
// PeerLost where the header is damaged; ConfigurationError for another version or what is no such
// frame.
absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(
    const transport::FrameHeader& header);

// Payload of kUpdate: this, then the gradient.
struct UpdateHead {
  uint64_t incarnation = 0, sequence = 0;
  int64_t number = 0;  // of the chunk's updates
  double learning_rate = 0;
  uint32_t worker = 0;
  uint32_t flags = 0;  // 1: DenseStore::Push::floor
};
static_assert(sizeof(UpdateHead) == 40);

// Payload of kState: all of it, or some of its rows. Each vector comes with its length: rows and
// their slots differ in it.
std::string EncodeState(const ChunkState& state);
// PeerLost where sizes do not fit together.
absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload);
// Payload of kWelcome, where it was asked for: of all chunks.
std::string EncodeStandings(const std::vector<DenseStore::Standing>& standings);
absl::StatusOr<std::vector<DenseStore::Standing>> DecodeStandings(std::span<const char> payload);

}  // namespace muster::ps
