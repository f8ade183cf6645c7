// Rows of embedding tables as the chief's callbacks look them up: on the servers, as they are then.
// They are trained by workers alone.
#pragma once

#include <functional>
#include <vector>

#include "chief/row_filler.h"
#include "chief/shard_client.h"
#include "common/train/embedding_store.h"

namespace muster {

class ServerRows final : public EmbeddingStore {
 public:
  // `primary`: the client of the task that serves a shard now; `again`, after a try that failed: it
  // waits a moment before, and restores what no task serves. A server that is lost is asked for
  // until `patience` is over: its backup may take its place, or it comes back. The director's
  // thread.
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

}  // namespace muster
