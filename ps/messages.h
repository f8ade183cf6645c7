// Converts between the messages of proto/parameter_server.proto and the types of ps/ (shard_host.h,
// shard_store.h). These headers define shard, chunk and view. For an invalid message, the functions
// return InvalidArgument with one sentence.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "muster/status.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

// `task` is the index of this ps task.
absl::StatusOr<ShardSpec> SpecOf(const proto::CreateRequest& request, int task);
// `shards` is the number of shards of the run.
absl::StatusOr<PsView> ViewOf(const proto::View& view, int shards);
// If `content` has no optimizer slots, the result has the initial slots of the optimizer's rule.
// Does not check sizes, because ShardStore checks all sizes.
absl::StatusOr<ChunkState> StateOf(const proto::ChunkContent& content, const ShardSpec& spec);
proto::ChunkContent ContentOf(int shard, int chunk, const ChunkState& state);

// Joins the pieces in which the content of a dense chunk arrives (ChunkContent.more).
class ContentJoiner {
 public:
  // After the last piece of a chunk, returns the complete content. After other pieces, returns
  // nullopt. A piece of an embedding table's chunk is not joined: Add returns it unchanged. Returns
  // an error if the pieces together are larger than the chunk.
  absl::StatusOr<std::optional<proto::ChunkContent>> Add(const proto::ChunkContent& piece,
                                                         const ShardSpec& spec);

 private:
  std::map<std::pair<int, int>, proto::ChunkContent> open_;  // Keyed by shard and chunk.
};

}  // namespace muster::ps
