// One server's part of an embedding table. An EmbeddingTable maps 64-bit keys to rows. A row
// consists of the parameter (a vector of `width` numbers) and the optimizer's slots (its state,
// such as a momentum). The first update of a key creates the key's row.
//
// The initial value of a row depends only on the seed, the key and the initializer. All other
// content of a table depends only on the restored state and the order of updates. Two tables with
// the same updates in the same order therefore hold the same rows. Lookups do not change rows.
//
// Thread-safe. The keys are distributed over the table's shards, and each shard has its own lock.
// (In other headers, a shard is the part of all variables that one server holds.)
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

// The initial value of rows. In the job file, the value is "zeros", or {"name": "uniform" |
// "normal" | "constant", "scale": s}. "uniform" draws from [-s, s). "normal" draws from the normal
// distribution with mean 0 and standard deviation s. "constant" sets all elements to s.
struct Initializer {
  enum class Kind { kZeros, kConstant, kUniform, kNormal };
  Kind kind = Kind::kUniform;
  double scale = 0.05;
};
absl::StatusOr<Initializer> ParseInitializer(const Json& json);

// The type of stored parameters. Slots are float32. The table computes an update in float32 and
// rounds the result to this type. For float16, the table rounds to nearest.
//
// For bfloat16, the table rounds up or down at random (stochastic rounding), because rounding to
// nearest would lose small updates. A number a + x (b - a) between two adjacent bfloat16 values a
// and b becomes b with probability x, and a otherwise. The random bits depend only on the key and
// the number of the update.
enum class RowType { kFloat32, kFloat16, kBFloat16 };
const std::vector<std::string>& RowTypeNames();

// Determines which rows a table evicts first.
enum class Eviction {
  kOldest,        // The rows that were created first.
  kLeastRecent,   // The rows whose last update is the oldest.
  kLeastFrequent  // The rows with the fewest updates. Ties are broken as in kLeastRecent.
};
const std::vector<std::string>& EvictionNames();

// The limits of a table's size.
struct RowLimits {
  // The maximum number of rows. 0: no limit. Each shard has an equal part of the limit, but at
  // least one row. A shard that exceeds its limit evicts rows until 15/16 of the limit are left, so
  // that the next updates need no eviction.
  int64_t max_rows = 0;
  // The maximum of TableStatistics::bytes. 0: no limit. The rules of max_rows apply.
  int64_t max_bytes = 0;
  Eviction eviction = Eviction::kLeastRecent;
  // The number of the update that creates a key's row, from 1. Previous updates of the key have no
  // effect. A shard stores update counts for at most kMaxCounted keys. If the shard has a limit of
  // n rows, the maximum is at most kCountedPerRow * n keys. When a shard cannot store another
  // count, it halves all counts and removes counts of 0.
  int64_t admit_after = 1;
  static constexpr size_t kMaxCounted = 1 << 16, kCountedPerRow = 4;

  bool capped() const { return max_rows > 0 || max_bytes > 0; }
};

// A column is a part of each row: the parameter, a slot, or a number that eviction needs.
struct RowColumn {
  std::string name;      // "rows" for the parameter, which is the first column.
  int64_t elements = 0;  // The number of float32 elements in each row.
  bool integer = false;  // True if the column is an int64, stored in the bytes of two elements.
  friend bool operator==(const RowColumn&, const RowColumn&) = default;
};

class EmbeddingTable {
 public:
  struct Options {
    int64_t width = 16;  // The number of elements of a row's parameter, at least 1.
    Initializer initializer;
    uint64_t seed = 42;
    RuleSpec rule;
    int shards = 16;  // A power of two.
    // Clipping of the gradient of each row. global_clipnorm is not supported.
    ClipOptions clip = {};
    RowType type = RowType::kFloat32;
    RowLimits limits = {};  // The limits for all shards of this table together.
  };
  static std::unique_ptr<EmbeddingTable> Make(Options options);
  // Returns the columns of a row: the parameter, the rule's slots, and the columns that eviction
  // needs. Export and checkpoints have the columns in this order.
  static std::vector<RowColumn> Columns(const Options& options);
  // Returns the names of all columns that any Eviction uses.
  static std::vector<std::string> EvictionColumns();
  virtual ~EmbeddingTable() = default;

  // Copies the parameters of `keys` to `rows`, which has the shape [keys][width]. For a key without
  // a row, copies the initial value of the row.
  virtual absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const = 0;
  // Updates the row of each key. `gradients` has the shape [keys][width]. If a key is repeated,
  // its row is updated once for each occurrence. If `distinct` is true and a key is repeated,
  // returns an error and changes no row. The optimizer's step is the value of updates() after this
  // call.
  virtual absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            double learning_rate, bool distinct = false) = 0;

  virtual int64_t size() const = 0;          // The number of rows.
  virtual int64_t updates() const = 0;       // The number of successful Push calls.
  virtual int64_t row_elements() const = 0;  // The number of elements of all columns of a row.
  virtual TableStatistics statistics() const = 0;

  // The result of Freeze: a snapshot of the rows. A snapshot needs 16 bytes for each row. While the
  // snapshot exists, the table copies each row before the row changes or is evicted. Rows are
  // numbered from 0. Two snapshots may number the same rows differently. REQUIRES: the table
  // outlives this object.
  class Frozen {
   public:
    virtual ~Frozen() = default;
    virtual int64_t size() const = 0;  // The number of rows.
    // Reads the keys of rows [first, first + keys.size()).
    virtual void ReadKeys(int64_t first, std::span<uint64_t> keys) const = 0;
    // Reads elements [begin, begin + elements) of rows [first, first + count). `begin` is a
    // position in a row in the format of Export. `out` has the shape [count][elements].
    virtual void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
                      float* out) const = 0;
  };
  virtual std::shared_ptr<const Frozen> Freeze() = 0;

  // Calls `visit` for every row, in unspecified order. `row` has all columns one after another,
  // with the parameter in float32. `visit` must not call methods of this table, because Export
  // holds the lock of the row's shard.
  virtual void Export(
      const std::function<void(uint64_t key, std::span<const float> row)>& visit) const = 0;
  // Stores a row. `row` has the format of Export.
  virtual absl::Status Restore(uint64_t key, std::span<const float> row) = 0;
  virtual void set_updates(int64_t updates) = 0;

  // The location of a row. For callers that sort rows before they read them.
  struct Place {
    uint64_t key;
    const float* row;
  };
  // Returns the locations of all rows, in unspecified order. The locations are valid until the next
  // Push or Restore.
  virtual std::vector<Place> Places() const = 0;
  // Copies one column of the row at `place` to the address `to`. `column` is the index of the
  // column. The table must not change during the call.
  virtual void Read(const Place& place, size_t column, float* to) const = 0;

  // Returns the keys without a row, and the counts of their updates (RowLimits::admit_after). The
  // result is key, count, key, count, ... in ascending order of keys.
  virtual std::vector<uint64_t> Counted() const = 0;
  // Stores a result of Counted.
  virtual void RestoreCounted(std::span<const uint64_t> keys_and_counts) = 0;
};

}  // namespace muster::push_pull
