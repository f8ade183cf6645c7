// The state of one parameter server, with dense variables and embedding tables: parameters, slots
// and the history of their updates, in chunks. The caller does I/O and owns the threads. This class
// has the state and its rules.
//
// Updates of a chunk are applied one at a time, in the order of arrival. Chunks are independent. A
// worker's pushes are numbered from 1, and each chunk applies a number once, however often it is
// sent. An interrupted push is thus resumed at the first chunk that does not have it.
//
// A chunk of an embedding table holds rows by key instead of a range of memory. The same rules
// apply.
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

namespace muster {

// The content of a chunk. Copied as a whole for checkpoints and backups.
struct ChunkState {
  // For n rows, in the format of PackRows.
  std::vector<float> parameters;
  // One vector for each of ShapedSlots(rule), as long as the parameters. For n rows: the columns of
  // EmbeddingTable::Columns except the first, in the same order, each [n][elements].
  std::vector<std::vector<float>> slots;
  std::vector<uint64_t> counted = {};  // See EmbeddingTable::Counted.
  int64_t updates = 0;                 // Applied so far; this is the rule's step.
  struct Last {
    uint64_t incarnation = 0, sequence = 0;
    friend bool operator==(const Last&, const Last&) = default;
  };
  std::map<int, Last> last;  // By worker: the newest push that was applied.
  friend bool operator==(const ChunkState&, const ChunkState&) = default;
};

// Returns rows [first, first + count) of a table's chunk, without updates and pushes.
ChunkState RowsOf(const EmbeddingTable::Frozen& rows, const std::vector<RowColumn>& columns,
                  int64_t first, int64_t count);

// Returns the state that Fill makes: initial slots of the rule, no updates.
ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters);

// The part of a chunk's state. Rows of a table's chunk may come in pieces. The chunk changes with
// the last piece, which has the state's updates. A first piece discards earlier ones.
struct Piece {
  bool first = true, last = true;
};

class ShardStore {
 public:
  struct Options {
    std::vector<Chunk> chunks;                           // The chunks of this server.
    std::vector<RuleSpec> rules;                         // Indexed by optimizer.
    std::map<int, EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
    // Number of servers, to refuse keys of another server's chunk or of another chunk. 0: keys are
    // not checked.
    int servers = 0;
  };
  static std::unique_ptr<ShardStore> Make(Options options);
  virtual ~ShardStore() = default;

  // ---- Initialization. ConfigurationErrors name the chunk and what does not fit.
  //
  // Sets the program's initial state: initial slots of the rule, no updates.
  virtual absl::Status Fill(int chunk, std::span<const float> parameters) = 0;
  virtual absl::Status Restore(int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns whether every chunk has content.
  virtual bool serving() const = 0;
  virtual absl::StatusOr<ChunkState> Copy(int chunk) const = 0;
  // The current rows of a table's chunk. They live as long as this object.
  struct FrozenRows {
    std::shared_ptr<const EmbeddingTable::Frozen> rows;
    int64_t updates = 0;
    std::map<int, ChunkState::Last> last;
    std::vector<uint64_t> counted;  // See ChunkState::counted.
  };
  virtual absl::StatusOr<FrozenRows> Freeze(int chunk) const = 0;
  // The current state of a chunk that is not of a table. It is copied before the next update or
  // when it is read (once), whichever comes first.
  class FrozenChunk;
  virtual absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const = 0;
  virtual absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const = 0;
  // Returns the columns of the chunk's rows, empty if it is not of a table. REQUIRES: the chunk
  // exists.
  virtual std::vector<RowColumn> columns(int chunk) const = 0;

  // ---- Workers
  //
  // Makes this process worker `worker`. Pushes of any other process for it are refused as
  // Superseded.
  virtual void Admit(int worker, uint64_t incarnation) = 0;
  // The worker is lost. When this returns, its pushes are refused and none is being applied. A push
  // that was applied in part stays as it is.
  virtual void Expel(int worker) = 0;

  // Applies the push and copies the resulting parameters to `out` unless it is empty, so a pull
  // contains all own earlier pushes. A push with an infinity or a NaN is refused, however often it
  // comes. It changes nothing and does not count as a push of the worker.
  virtual absl::StatusOr<Pushed> Apply(int chunk, const ChunkPush& push, std::span<float> out) = 0;
  // Blocks until the results of Apply for this chunk may be acknowledged.
  virtual absl::Status Await(int /*chunk*/) { return absl::OkStatus(); }
  // Copies the parameters. Returns the chunk's `updates`.
  virtual absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const = 0;

  // Copies rows of a table's chunk by key. A missing row has its initial value. Returns the chunk's
  // `updates`.
  virtual absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                           std::span<float> rows) const = 0;

  // ---- Backups
  struct Standing {
    int64_t updates = -1;  // -1: no content yet.
    friend bool operator==(const Standing&, const Standing&) = default;
  };
  // REQUIRES: the chunk exists.
  virtual Standing standing(int chunk) const = 0;
  // Applies an update as the primary did: as update `number` of the chunk, whichever workers are
  // admitted here. Returns FailedPrecondition if another number is next. Does not depend on other
  // chunks.
  virtual absl::StatusOr<Pushed> Replay(int chunk, const ChunkPush& push, int64_t number) = 0;

  // Returns the number of updates that were applied here since the store was made: the largest
  // number of any chunk.
  virtual int64_t applied() const = 0;
  // Returns the totals of the chunks here, by Chunk::table.
  virtual std::map<int, TableStatistics> tables() const = 0;
};

}  // namespace muster
