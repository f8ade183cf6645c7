// The state of one shard: parameters, optimizer slots and counts of updates, in chunks. A chunk
// holds a range of the dense variables, or rows of an embedding table by key. The store has no
// threads and does no I/O.
//
// The updates of a chunk are applied one at a time, in the order of arrival. Chunks are independent
// of each other. A worker numbers its pushes from 1, and each chunk applies a number once, however
// often the worker sends it. A worker can therefore send an interrupted push again.
//
// Thread-safe. The store refuses reads and pushes until every chunk is filled or restored, so that
// a restarted server does not present empty chunks as state.
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

// The content of a chunk, as checkpoints and backups receive it.
struct ChunkState {
  // For a chunk of a table: its rows in the format of PackRows.
  std::vector<float> parameters;
  // One vector for each of ShapedSlots(rule), as long as the parameters. For a chunk of a table
  // with n rows: the columns of EmbeddingTable::Columns except the first, each [n][elements].
  std::vector<std::vector<float>> slots;
  // For a chunk of a table: the result of EmbeddingTable::Counted.
  std::vector<uint64_t> counted = {};
  int64_t updates = 0;  // The number of applied updates, which is the rule's step.
  struct Last {
    uint64_t incarnation = 0, sequence = 0;
    friend bool operator==(const Last&, const Last&) = default;
  };
  std::map<int, Last> last;  // The newest applied push of each worker.
  friend bool operator==(const ChunkState&, const ChunkState&) = default;
};

// Returns rows [first, first + count) of a table's chunk. Does not set `updates` and `last`.
ChunkState RowsOf(const push_pull::EmbeddingTable::Frozen& rows,
                  const std::vector<push_pull::RowColumn>& columns, int64_t first, int64_t count);

// Returns a state with these parameters, the rule's initial slots and no updates.
ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters);

// The position of a piece in the state of a table's chunk, whose rows may come in several pieces.
// The first piece discards pieces of an earlier state. The chunk changes with the last piece, which
// has the state's `updates`.
struct Piece {
  bool first = true, last = true;
};

class ShardStore {
 public:
  struct Options {
    std::vector<push_pull::Chunk> chunks;                           // The chunks of the shard.
    std::vector<RuleSpec> rules;                                    // Indexed by optimizer.
    std::map<int, push_pull::EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
    // The number of servers. The store needs it to refuse keys that belong to another chunk. 0:
    // keys are not checked.
    int servers = 0;
  };
  static std::unique_ptr<ShardStore> Make(Options options);
  virtual ~ShardStore() = default;

  // ---- Initialization. Errors are ConfigurationErrors that name the chunk and the mismatch.
  //
  // Sets the chunk to FreshState(rule, parameters).
  virtual absl::Status Fill(int chunk, std::span<const float> parameters) = 0;
  virtual absl::Status Restore(int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns whether every chunk has content.
  virtual bool serving() const = 0;
  virtual absl::StatusOr<ChunkState> Copy(int chunk) const = 0;
  // The rows of a table's chunk at the time of Freeze. They are valid for the life of this object.
  struct FrozenRows {
    std::shared_ptr<const push_pull::EmbeddingTable::Frozen> rows;
    int64_t updates = 0;
    std::map<int, ChunkState::Last> last;
    std::vector<uint64_t> counted;  // As in ChunkState.
  };
  virtual absl::StatusOr<FrozenRows> Freeze(int chunk) const = 0;
  // FreezeDense preserves the current state of a chunk that is not of a table, until Read returns
  // it. Read may be called once. The store copies the state before the next update, or in Read if
  // that is earlier.
  class FrozenChunk;
  virtual absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const = 0;
  virtual absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const = 0;
  // Returns the columns of the chunk's rows, empty for a chunk that is not of a table. REQUIRES:
  // the chunk exists.
  virtual std::vector<push_pull::RowColumn> columns(int chunk) const = 0;

  // ---- Workers
  //
  // Accepts pushes of worker `worker` from the process with this incarnation only. Pushes of its
  // other processes return Superseded.
  virtual void Admit(int worker, uint64_t incarnation) = 0;
  // Refuses the pushes of a lost worker. Blocks until none is being applied. If some chunks have
  // applied their part of a push, they keep it.
  virtual void Expel(int worker) = 0;

  // Applies the push, and copies the resulting parameters to `out` unless `out` is empty. Refuses a
  // push with an infinity or a NaN, however often it is sent. A refused push changes nothing and
  // does not use its sequence number.
  virtual absl::StatusOr<push_pull::Pushed> Apply(int chunk, const push_pull::ChunkPush& push,
                                                  std::span<float> out) = 0;
  // Blocks until the results of Apply for this chunk may be acknowledged.
  virtual absl::Status Await(int /*chunk*/) { return absl::OkStatus(); }
  // Copies the parameters. Returns the chunk's `updates`.
  virtual absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const = 0;

  // Copies rows of a table's chunk by key. A missing row has its initial value. Returns the chunk's
  // `updates`.
  virtual absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                           std::span<float> rows) const = 0;

  // ---- Backups
  struct ChunkVersion {
    int64_t updates = -1;  // -1: no content yet.
    friend bool operator==(const ChunkVersion&, const ChunkVersion&) = default;
  };
  // REQUIRES: the chunk exists.
  virtual ChunkVersion chunk_version(int chunk) const = 0;
  // Applies an update of the primary as update `number` of the chunk. The worker need not be
  // admitted here, and other chunks need not have content. Returns FailedPrecondition if the
  // chunk's next update has another number.
  virtual absl::StatusOr<push_pull::Pushed> Replay(int chunk, const push_pull::ChunkPush& push,
                                                   int64_t number) = 0;

  // Returns the largest number of updates that one chunk has applied since the store was made.
  virtual int64_t applied() const = 0;
  // Returns the statistics of each table (Chunk::table), summed over the table's chunks in this
  // store.
  virtual std::map<int, push_pull::TableStatistics> tables() const = 0;
};

}  // namespace muster::ps
