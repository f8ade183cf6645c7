// What travels in proto/parameter_server.proto, as the types of ps/, and back. InvalidArgument,
// with one sentence, for what does not fit.
#pragma once

#include <vector>

#include "muster/status.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

// `task`: the index of the ps that is called.
absl::StatusOr<ShardSpec> SpecOf(const proto::CreateRequest& request, int task);
absl::StatusOr<PsView> ViewOf(const proto::View& view, int shards);
// Slots that are absent are as the rule begins. Sizes are left for the store to check.
absl::StatusOr<ChunkState> StateOf(const proto::ChunkContent& content, const ShardSpec& spec);
proto::ChunkContent ContentOf(int shard, int chunk, const ChunkState& state);
// The same in messages that are not too large: several of a chunk with many rows, of this width
// (0: no rows). Of keys that are not admitted yet they tell nothing.
std::vector<proto::ChunkContent> ContentsOf(int shard, int chunk, const ChunkState& state,
                                            int64_t width);
// Of those messages, in their order, the chunk again. REQUIRES: `parts` is not empty.
absl::StatusOr<ChunkState> JoinRows(std::vector<ChunkState> parts, int64_t width);

}  // namespace muster::ps
