// The embedding rows that a replica uses in one step, or in one batch of an evaluation pass. A
// replica is one device's copy of the model, with its own thread. Each row is read once. During a
// step, the gradients of rows are collected by key. At the end of the step, the gradients are
// summed over all replicas and applied as one update. Used by the replica's thread. Functions that
// do not return a Status throw StatusError. Internal to common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/collective/communicator.h"
#include "common/push_pull/rows/key_index.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/replica.h"
#include "muster/step.h"

namespace muster {

// Returns `keys` as a contiguous int64 tensor on the CPU. `call` is the name of the program's call
// that passed `keys`, for error messages.
at::Tensor HostKeys(const Replica& replica, EmbeddingHandle table, const at::Tensor& keys,
                    const char* call);
// Returns the keys in the result of HostKeys.
inline std::span<const uint64_t> KeysIn(const at::Tensor& host) {
  return {reinterpret_cast<const uint64_t*>(host.const_data_ptr<int64_t>()),
          static_cast<size_t>(host.numel())};
}

// A cache of the rows that a step looks up. A row is read when its key first occurs, and stays in
// the cache until Clear.
class LookedUpRows {
 public:
  explicit LookedUpRows(Replica* replica);
  // For each wanted[i], returns a tensor with the rows of its keys, on the replica's device. Its
  // shape is the shape of the keys tensor, followed by the table's width. Sets (*numbers)[i][j] to
  // the position of the j-th key of wanted[i] in keys(t), where t is the table of wanted[i].
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted,
                                 std::vector<std::vector<uint32_t>>* numbers);
  // Returns the distinct keys that were looked up, in the order of their first occurrence.
  const std::vector<uint64_t>& keys(int table) const { return tables_[table].index.keys(); }
  void Clear();

 private:
  struct Table {
    push_pull::KeyIndex index;
    std::vector<float> rows;  // [index.keys()][width]
  };
  // Reads the rows of keys that are not in the cache. known[t] is the number of keys of table t
  // whose rows are in the cache.
  void Read(const std::vector<size_t>& known);
  Replica* const replica_;
  std::vector<Table> tables_;
};

// Lookups without gradients, for an evaluation pass or a prediction.
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

// The rows of a training step and their gradients. A micro-batch is a part of the replica's slice
// of the batch. The calls of a step are: Begin, then for each micro-batch BeginMicroBatch, Lookup,
// AddLeaves and Collect, then Exchange and Push.
class EmbeddingStep {
 public:
  EmbeddingStep(Replica* replica, collective::Communicator* communicator);

  void Begin();
  void BeginMicroBatch() { leaves_.clear(); }
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted);
  std::vector<at::Tensor> Lookup(const std::vector<TableBags>& bags);
  // Appends the looked-up rows of this micro-batch to `inputs`. A backward pass computes gradients
  // for `inputs`.
  void AddLeaves(std::vector<at::Tensor>* inputs) const;
  // Moves the gradients from the looked-up rows to this object. Called after a backward pass.
  void Collect();
  // Multiplies all gradients collected in this step by `factor`.
  void Scale(double factor);
  // Sums the gradients over all replicas. All replicas must call Exchange at the same point of the
  // step. Does nothing if the program has no embedding table.
  absl::Status Exchange();
  // Returns true if all gradients that this replica has collected are finite.
  bool IsFinite() const;
  // Divides the summed gradients by the loss scale of float16 (precision.h). Returns false if a
  // gradient is not finite.
  bool Unscale(const LossScaler& scaler);
  // Updates the rows with the summed gradients, as the update of step number `steps_done` + 1.
  absl::Status Push(int64_t steps_done);

 private:
  // The result of one lookup.
  struct Leaf {
    int table;
    at::Tensor rows;                // [keys][width]
    std::vector<uint32_t> numbers;  // The index of each row's key in rows_.keys(table).
  };
  struct Gradients {
    std::vector<float> sums;    // [keys][width], for rows_.keys(table).
    std::vector<bool> touched;  // Indexed by key: true if the key received a gradient.
  };
  // Returns the keys that have a gradient, and their gradients.
  void Compact(int table, std::vector<uint64_t>* keys, std::vector<float>* sums) const;

  Replica* const replica_;
  collective::Communicator* const communicator_;
  LookedUpRows rows_;
  std::vector<Leaf> leaves_;  // Rows that this micro-batch looked up.
  std::vector<Gradients> gradients_;
  std::vector<push_pull::KeySums> summed_;  // Indexed by table: sums over all replicas.
};

}  // namespace muster
