// A replica's embedding rows during one step, or one batch of a pass. Each row is read once.
// Gradients are collected by key, summed over all replicas and pushed as one update. Used by the
// replica's thread. Functions throw StatusError. Internal to this folder.
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

// Returns a table's keys as the program passed them to `call`: int64 on the host, contiguous.
at::Tensor HostKeys(const Replica& replica, EmbeddingHandle table, const at::Tensor& keys,
                    const char* call);
inline std::span<const uint64_t> KeysIn(const at::Tensor& host) {
  return {reinterpret_cast<const uint64_t*>(host.const_data_ptr<int64_t>()),
          static_cast<size_t>(host.numel())};
}

// Looked-up rows by table. A row is read when its key first occurs, and kept until Clear.
class LookedUpRows {
 public:
  explicit LookedUpRows(Replica* replica);
  // Returns the rows of each element, [..., width], on the replica's device. Sets `numbers` to each
  // key's index among its table's keys.
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted,
                                 std::vector<std::vector<uint32_t>>* numbers);
  const std::vector<uint64_t>& keys(int table) const { return tables_[table].index.keys(); }
  void Clear();

 private:
  struct Table {
    KeyIndex index;
    std::vector<float> rows;  // [index.keys()][width]
  };
  // Reads the new keys of each table. `known[t]` is the number of keys that table t had before.
  void Read(const std::vector<size_t>& known);
  Replica* const replica_;
  std::vector<Table> tables_;
};

// For a pass or a prediction, without gradients.
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
  EmbeddingStep(Replica* replica, Communicator* communicator);

  void Begin();
  void BeginMicroBatch() { leaves_.clear(); }
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted);
  std::vector<at::Tensor> Lookup(const std::vector<TableBags>& bags);
  // Adds the leaves by which a backward pass must differentiate, in addition to the parameters.
  void AddLeaves(std::vector<at::Tensor>* inputs) const;
  // Called after a backward pass: moves the gradients out of the leaves.
  void Collect();
  // Multiplies the gradients collected so far.
  void Scale(double factor);
  // Sums the gradients over all replicas. All replicas call it at the same point of the step. Does
  // nothing if the program has no table.
  absl::Status Exchange();
  // Returns whether this replica's gradients collected so far are all finite.
  bool IsFinite() const;
  // Divides the gradients by the loss scale. Returns false if one is not finite.
  bool Unscale(const LossScaler& scaler);
  // Applies the update of step `steps_done` + 1.
  absl::Status Push(int64_t steps_done);

 private:
  struct Leaf {
    int table;
    at::Tensor rows;  // [keys][width]
    std::vector<uint32_t> numbers;
  };
  struct Gradients {
    std::vector<float> sums;    // [keys][width], of this replica's keys.
    std::vector<bool> touched;  // Indexed by key: whether it received a gradient.
  };
  void Compact(int table, std::vector<uint64_t>* keys, std::vector<float>* sums) const;

  Replica* const replica_;
  Communicator* const communicator_;
  LookedUpRows rows_;
  std::vector<Leaf> leaves_;  // The rows that this micro-batch looked up.
  std::vector<Gradients> gradients_;
  std::vector<KeySums> summed_;  // Over all replicas.
};

}  // namespace muster
