// The state of one shard: parameters, optimizer slots and counts of updates. A shard is the part of
// the variables that one parameter server holds. A shard consists of chunks. A chunk is a range of
// the dense variables, or rows of an embedding table. Workers send gradients in pushes. A push may
// cover several chunks.
//
// The store applies the updates of a chunk one at a time, in the order of arrival. Chunks are
// independent of each other. A worker numbers its pushes from 1, and each chunk applies each number
// at most once. A worker can therefore send an interrupted push again.
//
// Thread-safe. Apply, Pull and PullRows return Unavailable until Fill or Restore has given every
// chunk its content. A restarted server therefore never presents empty chunks as parameters. The
// store has no threads and does no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/optim/optimizer_spec.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/push.h"
#include "common/push_pull/rows/embedding_table.h"
#include "common/push_pull/rows/packed_rows.h"
#include "common/push_pull/rows/table_statistics.h"
#include "muster/status.h"

namespace muster::ps {

// The content of a chunk, for checkpoints and backups.
struct ChunkState {
  // For a chunk of an embedding table: the rows in the format of push_pull::PackRows.
  std::vector<float> parameters;
  // The optimizer's slots. A dense chunk has one vector for each of ShapedSlots(rule), with the
  // same size as `parameters`. A chunk of an embedding table with n rows has one vector for each of
  // EmbeddingTable::Columns except the first. Such a vector has the shape [n][elements], where
  // `elements` is RowColumn::elements.
  std::vector<std::vector<float>> slots;
  // Only for a chunk of an embedding table: the keys that have no row yet, each followed by its
  // number of updates (EmbeddingTable::Counted).
  std::vector<uint64_t> counted = {};
  int64_t updates = 0;  // The number of applied updates, which is the optimizer's step.
  // Identifies a push by the worker's process and by the push's number. An incarnation is a random
  // number that identifies a process.
  struct Last {
    uint64_t incarnation = 0, sequence = 0;
    friend bool operator==(const Last&, const Last&) = default;
  };
  std::map<int, Last> last;  // The newest applied push of each worker.
  friend bool operator==(const ChunkState&, const ChunkState&) = default;
};

// Returns the rows with indices from `first` to `first + count - 1`. Sets only `parameters` and
// `slots`.
ChunkState RowsOf(const push_pull::EmbeddingTable::Frozen& rows,
                  const std::vector<push_pull::RowColumn>& columns, int64_t first, int64_t count);

// Returns a state with these parameters, the initial slots of the optimizer's rule, and no updates.
ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters);

// The position of a piece in a state. The state of an embedding table's chunk may arrive in several
// pieces, each with some of the rows. The first piece discards the pieces of an incomplete earlier
// state. The chunk changes only when the final piece arrives. The chunk then takes
// ChunkState::updates and ChunkState::last from the final piece.
struct Piece {
  bool first = true, last = true;
};

class ShardStore {
 public:
  struct Options {
    std::vector<push_pull::Chunk> chunks;                           // The chunks of the shard.
    std::vector<RuleSpec> rules;                                    // Indexed by optimizer.
    std::map<int, push_pull::EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
    // The number of parameter servers. With this number, the store checks that a row's key belongs
    // to the chunk. 0: the store does not check keys.
    int servers = 0;
  };
  static std::unique_ptr<ShardStore> Make(Options options);
  virtual ~ShardStore() = default;

  // ---- Content of chunks. Fill and Restore return ConfigurationError if the content does not fit
  // the chunk. Copy, Freeze and FreezeDense return Unavailable if the chunk has no content yet.
  //
  // Sets the chunk to FreshState(rule, parameters). For a chunk of an embedding table, `parameters`
  // must be empty. The chunk then has no rows.
  virtual absl::Status Fill(int chunk, std::span<const float> parameters) = 0;
  virtual absl::Status Restore(int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns whether every chunk has content.
  virtual bool serving() const = 0;
  virtual absl::StatusOr<ChunkState> Copy(int chunk) const = 0;
  // The rows of an embedding table's chunk at the time of Freeze. `rows` remains valid as long as
  // this object exists.
  struct FrozenRows {
    std::shared_ptr<const push_pull::EmbeddingTable::Frozen> rows;
    int64_t updates = 0;
    std::map<int, ChunkState::Last> last;
    std::vector<uint64_t> counted;  // As in ChunkState.
  };
  virtual absl::StatusOr<FrozenRows> Freeze(int chunk) const = 0;
  // FreezeDense preserves the current state of a dense chunk for Read. Read returns this state, and
  // may be called once for each result of FreezeDense. The store copies the state as late as
  // possible: before the next update of the chunk, or in Read if there is no update before Read.
  class FrozenChunk;
  virtual absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const = 0;
  virtual absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const = 0;
  // Returns EmbeddingTable::Columns for a chunk of an embedding table, and an empty vector for a
  // dense chunk. REQUIRES: the chunk exists.
  virtual std::vector<push_pull::RowColumn> columns(int chunk) const = 0;

  // ---- Workers
  //
  // Accepts pushes of worker `worker` only from the process with this incarnation. Pushes of other
  // processes of this worker return Superseded.
  virtual void Admit(int worker, uint64_t incarnation) = 0;
  // Refuses all further pushes of a lost worker. Blocks until no push of this worker is being
  // applied. Chunks that have already applied their part of a push keep the result.
  virtual void Expel(int worker) = 0;

  // Applies the push. If `out` is not empty, copies the resulting parameters to `out`. Refuses a
  // push with an infinity or a NaN. A refused push changes nothing, and the worker may use its
  // sequence number again.
  virtual absl::StatusOr<push_pull::Pushed> Apply(int chunk, const push_pull::ChunkPush& push,
                                                  std::span<float> out) = 0;
  // Blocks until the server may acknowledge all pushes that Apply has applied to this chunk. A
  // store without a backup does not block.
  virtual absl::Status Await(int /*chunk*/) { return absl::OkStatus(); }
  // Copies the parameters to `out`. Returns the chunk's number of updates.
  virtual absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const = 0;

  // Copies the rows of `keys` to `rows`, for a chunk of an embedding table. A row that does not
  // exist has its initial value. Returns the chunk's number of updates.
  virtual absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                           std::span<float> rows) const = 0;

  // ---- Backups. The backup of a shard is a copy on another server. The primary, the server that
  // the workers use, forwards each update to the backup.
  struct ChunkVersion {
    int64_t updates = -1;  // -1: no content yet.
    friend bool operator==(const ChunkVersion&, const ChunkVersion&) = default;
  };
  // REQUIRES: the chunk exists.
  virtual ChunkVersion chunk_version(int chunk) const = 0;
  // Applies an update that the primary has forwarded, as update `number` of the chunk. Works for
  // any worker, even without a call of Admit. Works even if other chunks have no content. Returns
  // FailedPrecondition if the chunk does not have exactly `number` - 1 updates.
  virtual absl::StatusOr<push_pull::Pushed> Replay(int chunk, const push_pull::ChunkPush& push,
                                                   int64_t number) = 0;

  // Counts the updates of each chunk since the store was made, and returns the highest count.
  virtual int64_t applied() const = 0;
  // Returns the statistics of each embedding table, keyed by Chunk::table and summed over the
  // table's chunks in this store.
  virtual std::map<int, push_pull::TableStatistics> tables() const = 0;
};

}  // namespace muster::ps
