// The interface through which a training step reads and updates rows of embedding tables. The rows
// are in this process (LocalEmbeddings) or on parameter servers (ParameterExchange). A step reads
// rows while it computes, and updates them once, at the end of the step. A replica is one device's
// copy of the model, with its own thread. This code does not need LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/rows/embedding_table.h"
#include "muster/status.h"

namespace muster {

// The gradients of a step for rows of one table.
struct RowGradients {
  std::span<const uint64_t> keys;    // Without duplicates.
  std::span<const float> gradients;  // [keys][width]
  double learning_rate = 0;
};

// A read of rows of one table. EmbeddingStore::Pull writes the rows to `rows`.
struct RowRead {
  int table = 0;
  std::span<const uint64_t> keys;  // Without duplicates.
  std::span<float> rows;           // [keys][width]
};

class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;
  // Reads rows of several tables. `reads` has at most one element for each table. Requests to
  // servers are sent together. The rows include the updates of all earlier pushes to this store. A
  // row that was never pushed has its initial value.
  virtual absl::Status Pull(std::span<const RowRead> reads) = 0;
  // Makes one update of each row with a gradient. `step` counts from 1. `tables` has one element
  // for each table. An element may have no keys.
  virtual absl::Status Push(int64_t step, std::span<const RowGradients> tables) = 0;
};

// The tables of this process. All replicas of the process share the tables. Gradients are summed
// over all replicas before Push, so every replica pushes the same gradients. The first Push of a
// step makes the update. Each later Push of the same step only waits until that update is complete.
// Thread-safe.
class LocalEmbeddings : public EmbeddingStore {
 public:
  explicit LocalEmbeddings(std::vector<push_pull::EmbeddingTable::Options> options);

  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  int size() const { return static_cast<int>(tables_.size()); }
  push_pull::EmbeddingTable& table(int index) { return *tables_[index]; }
  const push_pull::EmbeddingTable& table(int index) const { return *tables_[index]; }
  const push_pull::EmbeddingTable::Options& options(int index) const { return options_[index]; }
  // Reset removes all rows of a table, so that another state can be restored. set_step sets the
  // number of the last applied step. REQUIRES for both: no replica is in a step.
  void Reset(int index);
  void set_step(int64_t step);

  // Returns a 64-bit digest of all rows, for comparing replicas. The order of the rows does not
  // matter.
  uint64_t Digest() const;
  // Returns a random number that identifies this object among the LocalEmbeddings of all processes.
  uint64_t identity() const { return identity_; }

 private:
  const std::vector<push_pull::EmbeddingTable::Options> options_;
  const uint64_t identity_;
  std::vector<std::unique_ptr<push_pull::EmbeddingTable>> tables_;
  absl::Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // The step of the newest update.
};

}  // namespace muster
