// One server's part of an embedding table: rows of one width by 64-bit key, with the slots of a row
// optimizer. A row is created by the first update of its key.
//
// The initial value of a row is a function of (seed, key) and the initializer. It does not depend
// on which worker first updates the row, when, or on which server. The existence and content of
// rows are a function of the restored state and the order of updates. Two tables with the same
// updates hold the same rows, and lookups change nothing. Thread-safe: keys are spread over shards,
// each with its own lock.
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

namespace muster {

// The initial value of rows: "zeros", or {"name": "uniform" | "normal" | "constant", "scale": s}.
// "uniform" draws from [-s, s), "normal" has standard deviation s, "constant" is s.
struct Initializer {
  enum class Kind { kZeros, kConstant, kUniform, kNormal };
  Kind kind = Kind::kUniform;
  double scale = 0.05;
};
absl::StatusOr<Initializer> ParseInitializer(const Json& json);

// The type of stored parameters. Slots are float32. Updates are computed in float32 and then
// rounded. float16 rounds to nearest. bfloat16 has only 8 bits of precision and would lose small
// updates, so it rounds up or down at random, in proportion to the distance. The random bits are a
// function of the key and the number of the update.
enum class RowType { kFloat32, kFloat16, kBFloat16 };
const std::vector<std::string>& RowTypeNames();

// The order of eviction.
enum class Eviction {
  kOldest,        // Rows created first.
  kLeastRecent,   // Rows not updated for the longest time.
  kLeastFrequent  // Rows with the fewest updates, and among equal ones the least recently updated.
};
const std::vector<std::string>& EvictionNames();

// The limits of a table's size.
struct RowLimits {
  // The maximum after an update. 0: no limit. Above it, the table evicts a sixteenth more rows than
  // necessary, so that one pass over the rows serves several updates. Each shard has its part of
  // the limit, at least one row.
  int64_t max_rows = 0;
  int64_t max_bytes = 0;  // As counted by TableStatistics::bytes.
  Eviction eviction = Eviction::kLeastRecent;
  // A row is created by the n-th update of its key, and earlier updates have no effect. Each shard
  // counts updates of at most kMostCounted keys. With a limit it counts at most kCountedPerRow
  // times the allowed rows. When the counter is full, all counts are halved.
  int64_t admit_after = 1;
  static constexpr size_t kMostCounted = 1 << 16, kCountedPerRow = 4;

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
  // The parameter, the rule's slots, and the columns used for eviction. Export, chunks and
  // checkpoints use this order.
  static std::vector<RowColumn> Columns(const Options& options);
  // The names of all columns that an eviction may use.
  static std::vector<std::string> EvictionColumns();
  virtual ~EmbeddingTable() = default;

  // Copies the rows of `keys`, in order, to `rows`, [keys][width]. A missing row has its initial
  // value.
  virtual absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const = 0;
  // Updates each row once. `gradients` is [keys][width]. A repeated key is updated repeatedly. If
  // `distinct`, a push with a repeated key is refused completely. The rule's step counts calls.
  virtual absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            double learning_rate, bool distinct = false) = 0;

  virtual int64_t size() const = 0;          // Rows.
  virtual int64_t updates() const = 0;       // Calls of Push.
  virtual int64_t row_elements() const = 0;  // Elements of all columns together.
  virtual TableStatistics statistics() const = 0;

  // A snapshot of the rows, made by Freeze. While it exists, the table copies a row before it
  // changes or evicts it. Costs 16 bytes per row. REQUIRES: the table outlives this object.
  class Frozen {
   public:
    virtual ~Frozen() = default;
    virtual int64_t size() const = 0;
    // Reads the keys of rows [first, first + keys.size()), in a fixed order specific to this
    // object.
    virtual void ReadKeys(int64_t first, std::span<uint64_t> keys) const = 0;
    // Reads elements [begin, begin + elements) of each of these rows, in the format of Export:
    // [count][elements].
    virtual void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
                      float* out) const = 0;
  };
  virtual std::shared_ptr<const Frozen> Freeze() = 0;

  // Visits every row with all its columns, in unspecified order. A shard is locked during its
  // visits. `visit` must not call methods of this table.
  virtual void Export(
      const std::function<void(uint64_t key, std::span<const float> row)>& visit) const = 0;
  // Stores a row with its columns, in the format of Export.
  virtual absl::Status Restore(uint64_t key, std::span<const float> row) = 0;
  virtual void set_updates(int64_t updates) = 0;

  // The location of a row. Places() returns them in unspecified order, for callers that sort rows
  // before reading them. Valid until the next Push or Restore.
  struct Place {
    uint64_t key;
    const float* row;
  };
  virtual std::vector<Place> Places() const = 0;
  // Copies one column of a row, with the number of elements given by Columns. The table must not
  // change during the call.
  virtual void Read(const Place& place, size_t column, float* to) const = 0;

  // Counted returns the keys that are not admitted yet, ascending, each followed by its number of
  // updates. RestoreCounted restores them.
  virtual std::vector<uint64_t> Counted() const = 0;
  virtual void RestoreCounted(std::span<const uint64_t> keys_and_counts) = 0;
};

}  // namespace muster
