// The embedding rows that a replica uses in one step, or in one batch of a pass. Each row is read
// once. A step collects the gradients of rows by key, sums them over all replicas, and applies them
// as one update. Used by the replica's thread. Functions throw StatusError. Internal to
// common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/collective/communicator.h"
#include "common/push_pull/rows/key_index.h"
#include "common/train/replica/precision.h"
#include "common/train/replica/replica.h"
#include "muster/step.h"

namespace muster {

// Returns the keys of a table that the program passed to `call`, as a contiguous int64 tensor on
// the host.
at::Tensor HostKeys(const Replica& replica, EmbeddingHandle table, const at::Tensor& keys,
                    const char* call);
inline std::span<const uint64_t> KeysIn(const at::Tensor& host) {
  return {reinterpret_cast<const uint64_t*>(host.const_data_ptr<int64_t>()),
          static_cast<size_t>(host.numel())};
}

// A cache of the rows that a step looks up. A row is read when its key first occurs, and kept until
// Clear.
class LookedUpRows {
 public:
  explicit LookedUpRows(Replica* replica);
  // Returns the rows of each element of `wanted`, [..., width], on the replica's device. Sets
  // `numbers` to the index of each key in keys(table).
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted,
                                 std::vector<std::vector<uint32_t>>* numbers);
  const std::vector<uint64_t>& keys(int table) const { return tables_[table].index.keys(); }
  void Clear();

 private:
  struct Table {
    push_pull::KeyIndex index;
    std::vector<float> rows;  // [index.keys()][width]
  };
  // Reads the rows of new keys. `known[t]` is the number of keys of table t whose rows were read
  // before.
  void Read(const std::vector<size_t>& known);
  Replica* const replica_;
  std::vector<Table> tables_;
};

// Lookups without gradients, for a pass or a prediction.
class ReadOnlyRows {
 public:
  explicit ReadOnlyRows(Replica* replica) : replica_(replica), rows_(replica) {}
  at::Tensor Lookup(EmbeddingHandle table, const at::Tensor& keys) {
    return Lookup(std::vector<TableKeys>{{table, keys}})[0];
  }
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted) {
    return rows_.Lookup(wanted, &numbers_);
  }
  std::vector<at::Tensor> Lookup(const std::vector<TableBags>& bags);
  void Clear() { rows_.Clear(); }

 private:
  Replica* const replica_;
  LookedUpRows rows_;
  std::vector<std::vector<uint32_t>> numbers_;
};

class EmbeddingStep {
 public:
  EmbeddingStep(Replica* replica, collective::Communicator* communicator);

  void Begin();
  void BeginMicroBatch() { leaves_.clear(); }
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted);
  std::vector<at::Tensor> Lookup(const std::vector<TableBags>& bags);
  // Adds the looked-up rows of this micro-batch to `inputs`, the leaves for which a backward pass
  // computes gradients.
  void AddLeaves(std::vector<at::Tensor>* inputs) const;
  // Moves the gradients out of the looked-up rows. Called after a backward pass.
  void Collect();
  // Multiplies the gradients collected so far.
  void Scale(double factor);
  // Sums the gradients over all replicas. All replicas must call it at the same point of the step.
  // Does nothing if the program has no table.
  absl::Status Exchange();
  // Returns true if all gradients that this replica has collected are finite.
  bool IsFinite() const;
  // Divides the summed gradients by the loss scale. Returns false if one is not finite.
  bool Unscale(const LossScaler& scaler);
  // Updates the rows with the summed gradients, for step `steps_done` + 1.
  absl::Status Push(int64_t steps_done);

 private:
  struct Leaf {
    int table;
    at::Tensor rows;  // [keys][width]
    std::vector<uint32_t> numbers;
  };
  struct Gradients {
    std::vector<float> sums;    // [keys][width], for the keys of this replica.
    std::vector<bool> touched;  // Indexed by key: true if it received a gradient.
  };
  void Compact(int table, std::vector<uint64_t>* keys, std::vector<float>* sums) const;

  Replica* const replica_;
  collective::Communicator* const communicator_;
  LookedUpRows rows_;
  std::vector<Leaf> leaves_;  // Rows that this micro-batch looked up.
  std::vector<Gradients> gradients_;
  std::vector<push_pull::KeySums> summed_;  // Indexed by table: sums over all replicas.
};

}  // namespace muster
