// What travels in proto/parameter_server.proto, as the types of ps/, and back. InvalidArgument,
// with one sentence, for what does not fit.
#pragma once

#include <map>
#include <optional>
#include <utility>
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

// Chunks of which pieces have come (ChunkContent.more). Of tables each piece is taken as it is.
class ContentJoiner {
 public:
  // The whole content, where this is the last piece of it. Refuses more than a chunk holds.
  absl::StatusOr<std::optional<proto::ChunkContent>> Add(const proto::ChunkContent& piece,
                                                         const ShardSpec& spec);

 private:
  std::map<std::pair<int, int>, proto::ChunkContent> open_;  // by shard and chunk
};

}  // namespace muster::ps
