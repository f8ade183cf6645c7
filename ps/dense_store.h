// What one parameter server holds, dense variables and embedding tables: parameters, slots, and
// what is known of their updates, in chunks. Bytes and threads are the caller's; this is the state
// and its rules.
//
// Updates of a chunk are applied one at a time, in the order in which they come; chunks know
// nothing of each other. A worker's pushes are numbered from 1; each chunk applies a number once,
// however often it is sent, so a push that was cut off is resumed at the first chunk that has not
// got it.
//
// A chunk of an embedding table holds rows by key instead of a range of memory, by the same rules.
//
// All methods may be called from any thread. Until every chunk was filled or restored, nothing is
// served: a server that was started again must not pass its emptiness off as state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/push_pull/embedding_table.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/optimizer_spec.h"
#include "common/push_pull/packed_rows.h"
#include "common/push_pull/push.h"
#include "common/push_pull/table_statistics.h"
#include "muster/status.h"

namespace muster {

// What a chunk holds. Copied as a whole, for checkpoints and backups.
struct ChunkState {
  // Of n rows: PackRows.
  std::vector<float> parameters;
  // Of ShapedSlots(rule), each as long; of n rows: EmbeddingTable::Columns but the first, each
  // [n][elements], in the same order.
  std::vector<std::vector<float>> slots;
  std::vector<uint64_t> counted = {};  // EmbeddingTable::Counted
  int64_t updates = 0;                 // applied so far: the rule's step
  struct Last {
    uint64_t incarnation = 0, sequence = 0;
    friend bool operator==(const Last&, const Last&) = default;
  };
  std::map<int, Last> last;  // by worker: the newest push that is in it
  friend bool operator==(const ChunkState&, const ChunkState&) = default;
};

// Of a chunk of a table: rows [first, first + count), without updates and pushes.
ChunkState RowsOf(const EmbeddingTable::Frozen& rows, const std::vector<RowColumn>& columns,
                  int64_t first, int64_t count);

// As Fill makes it: slots as the rule begins, no updates.
ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters);

// Which part of a chunk's state it is. Rows of a table's chunk may come in pieces: the chunk
// changes with the last one, which has the state's updates, and what came before a first one is
// forgotten.
struct Piece {
  bool first = true, last = true;
};

class DenseStore {
 public:
  struct Options {
    std::vector<Chunk> chunks;                           // of this server
    std::vector<RuleSpec> rules;                         // by optimizer
    std::map<int, EmbeddingTable::Options> tables = {};  // by Chunk::table
    // All there are: keys of another server's chunk, or of another chunk, are refused. 0: they are
    // not looked at.
    int servers = 0;
  };
  static std::unique_ptr<DenseStore> Make(Options options);
  virtual ~DenseStore() = default;

  // ---- Beginning. ConfigurationErrors name the chunk and what does not fit.
  // The program's own start: slots as the rule begins, no updates.
  virtual absl::Status Fill(int chunk, std::span<const float> parameters) = 0;
  virtual absl::Status Restore(int chunk, ChunkState state, Piece piece = {}) = 0;
  // Every chunk holds something.
  virtual bool serving() const = 0;
  virtual absl::StatusOr<ChunkState> Copy(int chunk) const = 0;
  // The rows of a table's chunk as they are now; they live as long as this object.
  struct FrozenRows {
    std::shared_ptr<const EmbeddingTable::Frozen> rows;
    int64_t updates = 0;
    std::map<int, ChunkState::Last> last;
    std::vector<uint64_t> counted;  // ChunkState's
  };
  virtual absl::StatusOr<FrozenRows> Freeze(int chunk) const = 0;
  // A chunk of no table as it is now. Nothing is copied before an update comes to it, or it is read
  // (once), whichever is first.
  class FrozenChunk;
  virtual absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const = 0;
  virtual absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const = 0;
  // What rows of the chunk consist of; none: it is of no table. REQUIRES: there is such a chunk.
  virtual std::vector<RowColumn> columns(int chunk) const = 0;

  // ---- Workers.
  // From now on `worker` is this process: pushes of any other one are refused as Superseded.
  virtual void Admit(int worker, uint64_t incarnation) = 0;
  // It is lost: once this returns its pushes are refused, and none is being applied. A torn push
  // stays as it is.
  virtual void Expel(int worker) = 0;

  // Applies it, and copies the parameters as they are then to `out` unless that is empty: a pull
  // contains all own earlier pushes. One with an infinity or a NaN is refused, however often it
  // comes: nothing changes, and it counts as no push of the worker's.
  virtual absl::StatusOr<Pushed> Apply(int chunk, const ChunkPush& push, std::span<float> out) = 0;
  // Returns when what Apply has returned of this chunk may be acknowledged.
  virtual absl::Status Await(int /*chunk*/) { return absl::OkStatus(); }
  // Copies the parameters; returns the chunk's `updates`.
  virtual absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const = 0;

  // Rows by key of a chunk of a table; a row that is not there is told as it would begin. Returns
  // the chunk's `updates`.
  virtual absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                           std::span<float> rows) const = 0;

  // ---- Backups.
  struct Standing {
    int64_t updates = -1;  // -1: holds nothing yet
    friend bool operator==(const Standing&, const Standing&) = default;
  };
  // REQUIRES: there is such a chunk.
  virtual Standing standing(int chunk) const = 0;
  // Applies it as the primary did: as update `number` of the chunk, whoever is admitted here.
  // FailedPrecondition where it is not its turn. Needs no other chunk.
  virtual absl::StatusOr<Pushed> Replay(int chunk, const ChunkPush& push, int64_t number) = 0;

  // Updates that were applied here since it was made: the largest number of any chunk.
  virtual int64_t applied() const = 0;
  // By Chunk::table: of its chunks here, together.
  virtual std::map<int, TableStatistics> tables() const = 0;
};

}  // namespace muster
