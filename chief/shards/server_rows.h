// ServerRows is the EmbeddingStore of the chief's callbacks. Pull reads current rows of embedding
// tables from the servers. Push always fails, because only workers train the rows.
#pragma once

#include <functional>
#include <vector>

#include "chief/shards/row_filler.h"
#include "chief/shards/shard_client.h"
#include "common/train/embedding/embedding_store.h"

namespace muster::chief {

class ServerRows final : public EmbeddingStore {
 public:
  // `primary` returns the client of the task that serves a shard now. `again` is true after a
  // failed try. `primary` then first waits a moment and restores shards that no task serves. Pull
  // retries for `patience`, because a backup may replace a lost server or the server may return.
  // Used on the director's thread.
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
