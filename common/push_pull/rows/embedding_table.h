// One server's part of an embedding table. It maps 64-bit keys to rows of one width, and holds the
// optimizer's slots of each row. The first update of a key creates its row.
//
// The initial value of a row is a function of the seed, the key and the initializer. It does not
// depend on the worker, the server or the time of the first update. The existence and content of
// rows are a function of the restored state and the order of updates. Two tables with the same
// updates hold the same rows. Lookups do not change a table.
//
// Thread-safe. Keys are distributed over shards, and each shard has its own lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"
#include "common/push_pull/rows/table_statistics.h"
#include "muster/json.h"

namespace muster::push_pull {

// The initial value of rows. In the job file it is "zeros", or {"name": "uniform" | "normal" |
// "constant", "scale": s}. "uniform" draws from [-s, s). "normal" has mean 0 and standard deviation
// s. "constant" is s.
struct Initializer {
  enum class Kind { kZeros, kConstant, kUniform, kNormal };
  Kind kind = Kind::kUniform;
  double scale = 0.05;
};
absl::StatusOr<Initializer> ParseInitializer(const Json& json);

// The type of stored parameters. Slots are float32. The table computes updates in float32 and then
// rounds. float16 rounds to nearest. bfloat16 has only 8 bits of precision and would lose small
// updates, so it rounds up or down at random. The nearer value is more probable, in proportion to
// the distance. The random bits are a function of the key and the number of the update.
enum class RowType { kFloat32, kFloat16, kBFloat16 };
const std::vector<std::string>& RowTypeNames();

// The rows that a table evicts first.
enum class Eviction {
  kOldest,        // The rows created first.
  kLeastRecent,   // The rows not updated for the longest time.
  kLeastFrequent  // The rows with the fewest updates; among equals, the least recently updated.
};
const std::vector<std::string>& EvictionNames();

// The limits of a table's size.
struct RowLimits {
  // The maximum number of rows after an update. 0: no limit. An update that exceeds the limit
  // evicts a sixteenth more rows than necessary, so that the next updates need no eviction. Each
  // shard has an equal part of the limit, at least one row.
  int64_t max_rows = 0;
  int64_t max_bytes = 0;  // The maximum of TableStatistics::bytes. The rules of max_rows apply.
  Eviction eviction = Eviction::kLeastRecent;
  // The update of a key that has this number, counted from 1, creates the key's row. Earlier
  // updates have no effect. Each shard counts the updates of at most kMaxCounted keys. If rows are
  // limited, it counts at most kCountedPerRow times as many keys as it may have rows. When the
  // counter is full, all counts are halved.
  int64_t admit_after = 1;
  static constexpr size_t kMaxCounted = 1 << 16, kCountedPerRow = 4;

  bool capped() const { return max_rows > 0 || max_bytes > 0; }
};

// One component of a row.
struct RowColumn {
  std::string name;      // "rows" (the parameter, always first), or the name of a slot.
  int64_t elements = 0;  // Number of float32 elements in each row.
  bool integer = false;  // An int64, stored as two elements.
  friend bool operator==(const RowColumn&, const RowColumn&) = default;
};

class EmbeddingTable {
 public:
  struct Options {
    int64_t width = 16;  // Elements per row, at least 1.
    Initializer initializer;
    uint64_t seed = 42;
    RuleSpec rule;
    int shards = 16;  // A power of two.
    // Clips the gradient of one row. global_clipnorm is not supported for tables.
    ClipOptions clip = {};
    RowType type = RowType::kFloat32;
    RowLimits limits = {};  // The limits of this table, all shards together.
  };
  static std::unique_ptr<EmbeddingTable> Make(Options options);
  // Returns the parameter, the rule's slots, and the columns used for eviction. Export, chunks and
  // checkpoints use this order.
  static std::vector<RowColumn> Columns(const Options& options);
  // Returns the names of all columns that any Eviction uses.
  static std::vector<std::string> EvictionColumns();
  virtual ~EmbeddingTable() = default;

  // Copies the rows of `keys`, in order, to `rows`, [keys][width]. A missing row has its initial
  // value.
  virtual absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const = 0;
  // Updates the row of each key. `gradients` is [keys][width]. If a key is repeated, its row is
  // updated once per occurrence. If `distinct` is true, a repeated key is an error, and no row
  // changes. The rule's step is the number of calls.
  virtual absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            double learning_rate, bool distinct = false) = 0;

  virtual int64_t size() const = 0;          // Rows.
  virtual int64_t updates() const = 0;       // Calls of Push.
  virtual int64_t row_elements() const = 0;  // Elements of all columns together.
  virtual TableStatistics statistics() const = 0;

  // A snapshot of the rows, made by Freeze. While it exists, the table copies each row before the
  // row changes or is evicted. A snapshot uses 16 bytes per row. REQUIRES: the table outlives this
  // object.
  class Frozen {
   public:
    virtual ~Frozen() = default;
    virtual int64_t size() const = 0;
    // Reads the keys of rows [first, first + keys.size()). The order of rows is fixed for this
    // object. Another object may have another order.
    virtual void ReadKeys(int64_t first, std::span<uint64_t> keys) const = 0;
    // Reads elements [begin, begin + elements) of rows [first, first + count) to `out`,
    // [count][elements]. `begin` is a position in a row as Export passes it.
    virtual void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
                      float* out) const = 0;
  };
  virtual std::shared_ptr<const Frozen> Freeze() = 0;

  // Calls `visit` for every row, with all columns one after another, in unspecified order. Holds
  // the lock of the row's shard, so `visit` must not call methods of this table.
  virtual void Export(
      const std::function<void(uint64_t key, std::span<const float> row)>& visit) const = 0;
  // Stores a row with all columns, in the format of Export.
  virtual absl::Status Restore(uint64_t key, std::span<const float> row) = 0;
  virtual void set_updates(int64_t updates) = 0;

  // The location of a row, for callers that sort rows before they read them. Places() returns all
  // locations in unspecified order. They are valid until the next Push or Restore.
  struct Place {
    uint64_t key;
    const float* row;
  };
  virtual std::vector<Place> Places() const = 0;
  // Copies one column of a row, RowColumn::elements in all. The table must not change during the
  // call.
  virtual void Read(const Place& place, size_t column, float* to) const = 0;

  // Returns the keys that have no row yet because of admit_after. Keys ascend, and each key is
  // followed by its number of updates.
  virtual std::vector<uint64_t> Counted() const = 0;
  // Restores the result of Counted.
  virtual void RestoreCounted(std::span<const uint64_t> keys_and_counts) = 0;
};

}  // namespace muster::push_pull
