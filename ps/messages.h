// Converts between the messages of proto/parameter_server.proto and the types of ps/. Returns
// InvalidArgument with one sentence for invalid messages.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "muster/status.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

// `task`: the index of the called ps task.
absl::StatusOr<ShardSpec> SpecOf(const proto::CreateRequest& request, int task);
absl::StatusOr<PsView> ViewOf(const proto::View& view, int shards);
// Missing slots get the rule's initial values. The store checks sizes.
absl::StatusOr<ChunkState> StateOf(const proto::ChunkContent& content, const ShardSpec& spec);
proto::ChunkContent ContentOf(int shard, int chunk, const ChunkState& state);

// Joins chunks that arrive in pieces (ChunkContent.more). Pieces of tables are passed on unchanged.
class ContentJoiner {
 public:
  // Returns the complete content if this is its last piece. Refuses more than a chunk holds.
  absl::StatusOr<std::optional<proto::ChunkContent>> Add(const proto::ChunkContent& piece,
                                                         const ShardSpec& spec);

 private:
  std::map<std::pair<int, int>, proto::ChunkContent> open_;  // By shard and chunk.
};

}  // namespace muster::ps
