// An embedding table: rows of one width by 64-bit key, made by their first update, with the slots
// of a row optimizer beside them. One server's part of a table.
//
// What a row begins with is a function of (seed, key) and the initialiser: it does not matter who
// touches it first, when, or on which server. Which rows there are, and what they hold, is a
// function of the state that was restored and the order of updates: whoever makes the same updates
// has the same rows, and looking rows up changes nothing. All methods may be called from any
// thread; keys are spread over shards, each under a lock of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/optimizer_spec.h"
#include "common/push_pull/table_statistics.h"
#include "muster/json.h"

namespace muster {

// What new rows hold: "zeros", or {"name": "uniform" | "normal" | "constant", "scale": s}: in [-s,
// s), with standard deviation s, or s itself.
struct Initializer {
  enum class Kind { kZeros, kConstant, kUniform, kNormal };
  Kind kind = Kind::kUniform;
  double scale = 0.05;
};
absl::StatusOr<Initializer> ParseInitializer(const Json& json);

// How the parameters of rows are kept; slots are float32. They are updated in float32 and rounded:
// to float16 to the nearest; to bfloat16, whose 8 bits would lose small updates, up or down at
// random, in proportion to what is nearer. Chance is a function of the key and the number of the
// update.
enum class RowType { kFloat32, kFloat16, kBFloat16 };
const std::vector<std::string>& RowTypeNames();

// Which rows go first.
enum class Eviction {
  kOldest,        // that were made first
  kLeastRecent,   // that were updated the longest ago
  kLeastFrequent  // that were updated the fewest times; among these, the longest ago
};
const std::vector<std::string>& EvictionNames();

// What keeps a table from growing.
struct RowLimits {
  // At the most, after an update; 0: any number. Above it the first ones go, a sixteenth more than
  // have to, so that one pass over the rows serves many. Each shard has its part, at least one row.
  int64_t max_rows = 0;
  int64_t max_bytes = 0;  // TableStatistics'
  Eviction eviction = Eviction::kLeastRecent;
  // A row is made in the n-th update of its key; those before change nothing. They are counted for
  // kMostCounted keys in each shard, with a cap for no more than kCountedPerRow times the rows that
  // it allows: where there are more, all counts are halved.
  int64_t admit_after = 1;
  static constexpr size_t kMostCounted = 1 << 16, kCountedPerRow = 4;

  bool capped() const { return max_rows > 0 || max_bytes > 0; }
};

// One of the things that a row consists of.
struct RowColumn {
  std::string name;      // "rows" (the parameter, always the first), or a slot's
  int64_t elements = 0;  // float32, of each row
  bool integer = false;  // an int64, which takes two elements as it lies in memory
  friend bool operator==(const RowColumn&, const RowColumn&) = default;
};

class EmbeddingTable {
 public:
  struct Options {
    int64_t width = 16;  // of a row, at least 1
    Initializer initializer;
    uint64_t seed = 42;
    RuleSpec rule;
    int shards = 16;        // a power of two
    ClipOptions clip = {};  // of the gradient of a row; global_clipnorm is not for tables
    RowType type = RowType::kFloat32;
    RowLimits limits = {};  // of this table, all shards together
  };
  static std::unique_ptr<EmbeddingTable> Make(Options options);
  // The parameter, the rule's slots, and what evictions go by: in the order in which Export tells
  // them, and chunks and checkpoints have them.
  static std::vector<RowColumn> Columns(const Options& options);
  // Of all that evictions may go by, the names.
  static std::vector<std::string> EvictionColumns();
  virtual ~EmbeddingTable() = default;

  // Rows of `keys`, in their order, [keys][width]. A row that is not there is told as it would
  // begin.
  virtual absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const = 0;
  // One update of each row; `gradients` is [keys][width]. A key that comes twice is updated twice,
  // or, where they are to be `distinct`, refused with all of the push. The rule's step counts
  // calls.
  virtual absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            double learning_rate, bool distinct = false) = 0;

  virtual int64_t size() const = 0;          // rows
  virtual int64_t updates() const = 0;       // calls of Push
  virtual int64_t row_elements() const = 0;  // of all columns
  virtual TableStatistics statistics() const = 0;

  // The rows as they are now, whatever becomes of them: what is changed, or goes, is copied before,
  // as long as this object lives. Costs 16 bytes a row. REQUIRES: the table lives as long.
  class Frozen {
   public:
    virtual ~Frozen() = default;
    virtual int64_t size() const = 0;
    // Of rows [first, first + keys.size()), in an order of its own that does not change.
    virtual void ReadKeys(int64_t first, std::span<uint64_t> keys) const = 0;
    // Elements [begin, begin + elements) of each of these rows, as Export tells rows:
    // [count][elements].
    virtual void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
                      float* out) const = 0;
  };
  virtual std::shared_ptr<const Frozen> Freeze() = 0;

  // Every row with all its columns, in no order; a shard is locked meanwhile. `visit` must not call
  // back.
  virtual void Export(
      const std::function<void(uint64_t key, std::span<const float> row)>& visit) const = 0;
  // Puts a row with its columns, as Export told it.
  virtual absl::Status Restore(uint64_t key, std::span<const float> row) = 0;
  virtual void set_updates(int64_t updates) = 0;

  // Where rows are, in no order, for whoever sorts them before they are read. Good until the next
  // Push or Restore.
  struct Place {
    uint64_t key;
    const float* row;
  };
  virtual std::vector<Place> Places() const = 0;
  // One column of a row, Columns' elements of it. The table must not change meanwhile.
  virtual void Read(const Place& place, size_t column, float* to) const = 0;

  // Keys that are not admitted yet, ascending, each with the number of its updates; and back.
  virtual std::vector<uint64_t> Counted() const = 0;
  virtual void RestoreCounted(std::span<const uint64_t> keys_and_counts) = 0;
};

}  // namespace muster
