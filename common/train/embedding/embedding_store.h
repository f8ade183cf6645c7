// The storage of a program's embedding rows as a replica's step sees it: this process or parameter
// servers. A step reads rows while it computes, and changes them once, at its commit. Needs no
// LibTorch.
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

// The part of a step's update that concerns one table.
struct RowGradients {
  std::span<const uint64_t> keys;    // Distinct.
  std::span<const float> gradients;  // [keys][width]
  double learning_rate = 0;
};

// The rows of one table that a step reads.
struct RowRead {
  int table = 0;
  std::span<const uint64_t> keys;  // Distinct.
  std::span<float> rows;           // [keys][width]
};

class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;
  // Reads rows of several tables, each named at most once. Remote reads are sent together. The rows
  // include all earlier pushes to this store. A row without any push has its initial value.
  virtual absl::Status Pull(std::span<const RowRead> reads) = 0;
  // Applies one update to each row. `step` counts from 1. One element for each table; a table
  // without keys is unchanged.
  virtual absl::Status Push(int64_t step, std::span<const RowGradients> tables) = 0;
};

// Tables in this process, shared by its replicas. All replicas push the same gradients of a step,
// already summed over all of them. The first push is applied, and the others wait for it.
// Thread-safe.
class LocalEmbeddings : public EmbeddingStore {
 public:
  explicit LocalEmbeddings(std::vector<EmbeddingTable::Options> options);

  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  int size() const { return static_cast<int>(tables_.size()); }
  EmbeddingTable& table(int index) { return *tables_[index]; }
  const EmbeddingTable& table(int index) const { return *tables_[index]; }
  const EmbeddingTable::Options& options(int index) const { return options_[index]; }
  // Reset removes all rows before another state is restored. set_step sets the last applied step.
  // Both require that no replica is in a step.
  void Reset(int index);
  void set_step(int64_t step);

  // Returns 64 bits over all rows, independent of their order, to compare replicas.
  uint64_t Digest() const;
  // Unique among all stores.
  uint64_t identity() const { return identity_; }

 private:
  const std::vector<EmbeddingTable::Options> options_;
  const uint64_t identity_;
  std::vector<std::unique_ptr<EmbeddingTable>> tables_;
  absl::Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // The last step that was applied.
};

}  // namespace muster
