// ServerRows lets callbacks on the chief look up rows of embedding tables. It is an EmbeddingStore
// (common/train/embedding/embedding_store.h). Pull reads the current rows from the servers (ps
// tasks). Push always fails, because only workers train the rows. Only the thread of Director::Run
// uses a ServerRows.
#pragma once

#include <functional>
#include <vector>

#include "chief/shards/row_filler.h"
#include "chief/shards/shard_client.h"
#include "common/train/embedding/embedding_store.h"

namespace muster::chief {

class ServerRows final : public EmbeddingStore {
 public:
  // A shard is the part of the variables that one server holds. `primary` returns the client of the
  // server that serves a shard now. `again` is true if the last pull has failed. `primary` then
  // waits a moment, and restores shards that no server serves. Pull retries for `patience`. During
  // this time, another server may take over the shards of a lost server, or the lost server may
  // return.
  using Primary = std::function<absl::StatusOr<ShardClient*>(int shard, bool again)>;
  ServerRows(std::vector<ServedTable> tables, int servers, Duration patience, Primary primary)
      : tables_(std::move(tables)),
        servers_(servers),
        patience_(patience),
        primary_(std::move(primary)) {}

  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

 private:
  absl::Status PullOne(const RowRead& read);
  absl::Status PullFrom(int server, int variable, std::span<const uint64_t> keys,
                        std::span<float> rows);

  const std::vector<ServedTable> tables_;
  const int servers_;
  const Duration patience_;
  const Primary primary_;
};

}  // namespace muster::chief
