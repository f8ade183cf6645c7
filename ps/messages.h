// Converts between the messages of proto/parameter_server.proto and the types of ps/. The functions
// return InvalidArgument, with one sentence, for an invalid message.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "muster/status.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

// `task` is the index of the ps task that was called.
absl::StatusOr<ShardSpec> SpecOf(const proto::CreateRequest& request, int task);
absl::StatusOr<PsView> ViewOf(const proto::View& view, int shards);
// Sets missing slots to the rule's initial values. Does not check sizes, because the store does.
absl::StatusOr<ChunkState> StateOf(const proto::ChunkContent& content, const ShardSpec& spec);
proto::ChunkContent ContentOf(int shard, int chunk, const ChunkState& state);

// Joins the pieces of dense chunks (ChunkContent.more). Returns pieces of tables unchanged.
class ContentJoiner {
 public:
  // Returns the complete content after its last piece, else nullopt. Refuses pieces that exceed the
  // chunk's size.
  absl::StatusOr<std::optional<proto::ChunkContent>> Add(const proto::ChunkContent& piece,
                                                         const ShardSpec& spec);

 private:
  std::map<std::pair<int, int>, proto::ChunkContent> open_;  // By shard and chunk.
};

}  // namespace muster::ps
