// An embedding table: rows of one width by 64-bit key, made on first touch, with the slots of a row
// optimizer beside them. One server's part of a table.
//
// What a row begins with is a function of (seed, key) and the initialiser: it does not matter who
// touches it first, when, or on which server. All methods may be called from any thread; keys are
// spread over shards, each under a lock of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/optimizer_spec.h"
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

// One of the things that a row consists of.
struct RowColumn {
  std::string name;      // "rows" (the parameter, always the first), or a slot's
  int64_t elements = 0;  // float32, of each row
  bool integer = false;  // each is an int64, which takes two elements
};

class EmbeddingTable {
 public:
  struct Options {
    int64_t width = 16;  // of a row, at least 1
    Initializer initializer;
    uint64_t seed = 42;
    RuleSpec rule;
    int shards = 16;  // a power of two
  };
  static std::unique_ptr<EmbeddingTable> Make(Options options);
  // In the order in which Export tells them, and chunks and checkpoints have them.
  static std::vector<RowColumn> Columns(const Options& options);
  virtual ~EmbeddingTable() = default;

  // Rows of `keys`, in their order, [keys][width].
  virtual absl::Status Pull(std::span<const uint64_t> keys, std::span<float> rows) = 0;
  // The same, but a row that is not there is told as it would begin, and not made.
  virtual absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const = 0;
  // One update of each row; `gradients` is [keys][width]. A key that comes twice is updated twice.
  // The rule's step counts calls.
  virtual absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            double learning_rate) = 0;

  virtual int64_t size() const = 0;          // rows
  virtual int64_t updates() const = 0;       // calls of Push
  virtual int64_t row_elements() const = 0;  // of a parameter and its slots

  // The rows as they are now, whatever becomes of them: what is changed is copied before, as long
  // as this object lives. Costs 16 bytes a row. REQUIRES: the table lives as long.
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

  // Every row with its slots, in no order; a shard is locked meanwhile. `visit` must not call back.
  // A row stays where it is as long as the table lives.
  virtual void Export(
      const std::function<void(uint64_t key, std::span<const float> row)>& visit) const = 0;
  // Puts a row with its slots, as Export told it.
  virtual absl::Status Restore(uint64_t key, std::span<const float> row) = 0;
  virtual void set_updates(int64_t updates) = 0;
};

}  // namespace muster
