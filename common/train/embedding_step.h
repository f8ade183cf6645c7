// A replica's embedding rows during one step (or one batch of a pass): each row is read once, its
// gradients are collected by key, summed over all replicas and pushed as one update. Internal to
// this folder. Used by the replica's thread. Whatever throws, throws StatusError.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/collective/communicator.h"
#include "common/push_pull/key_index.h"
#include "common/train/precision.h"
#include "common/train/replica.h"
#include "muster/step.h"

namespace muster {

// A table's keys as a program gave them to `call`: int64 on the host, contiguous.
at::Tensor HostKeys(const Replica& replica, EmbeddingHandle table, const at::Tensor& keys,
                    const char* call);
inline std::span<const uint64_t> KeysIn(const at::Tensor& host) {
  return {reinterpret_cast<const uint64_t*>(host.const_data_ptr<int64_t>()),
          static_cast<size_t>(host.numel())};
}

// Rows that were looked up, by table. They are read when a key first comes, and kept until Clear.
class LookedUpRows {
 public:
  explicit LookedUpRows(Replica* replica);
  // Of each element [..., width], on the replica's device. `numbers` gets each key's number among
  // its table's keys.
  std::vector<at::Tensor> Lookup(const std::vector<TableKeys>& wanted,
                                 std::vector<std::vector<uint32_t>>* numbers);
  const std::vector<uint64_t>& keys(int table) const { return tables_[table].index.keys(); }
  void Clear();

 private:
  struct Table {
    KeyIndex index;
    std::vector<float> rows;  // [index.keys()][width]
  };
  // What comes for the first time: of tables that had so many keys before.
  void Read(const std::vector<size_t>& known);
  Replica* const replica_;
  std::vector<Table> tables_;
};

// Of a pass or a prediction, where nothing is differentiated.
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
  // What a backward pass is to differentiate by, besides parameters.
  void AddLeaves(std::vector<at::Tensor>* inputs) const;
  // After a backward pass: takes what it left in the leaves.
  void Collect();
  // Multiplies what was collected so far.
  void Scale(double factor);
  // Sums over all replicas. Called by all of them, at the same place of the step; nothing where the
  // program has no table.
  absl::Status Exchange();
  // Whether all that was collected so far is, of this replica.
  bool IsFinite() const;
  // Divides by the loss scale; false if a gradient is not finite.
  bool Unscale(const LossScaler& scaler);
  // The update of step `steps_done` + 1.
  absl::Status Push(int64_t steps_done);

 private:
  struct Leaf {
    int table;
    at::Tensor rows;  // [keys][width]
    std::vector<uint32_t> numbers;
  };
  struct Gradients {
    std::vector<float> sums;    // [keys][width], of this replica's keys
    std::vector<bool> touched;  // by key: a gradient came
  };
  void Compact(int table, std::vector<uint64_t>* keys, std::vector<float>* sums) const;

  Replica* const replica_;
  Communicator* const communicator_;
  LookedUpRows rows_;
  std::vector<Leaf> leaves_;  // of the micro-batch
  std::vector<Gradients> gradients_;
  std::vector<KeySums> summed_;  // over all replicas
};

}  // namespace muster
