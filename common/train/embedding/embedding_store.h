// The interface through which a replica's step reads and updates embedding rows. The rows are in
// this process (LocalEmbeddings) or on parameter servers (ParameterExchange). A step reads rows
// while it computes, and updates them once, at its commit. This code does not need LibTorch.
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

// The gradients of a step for the rows of one table.
struct RowGradients {
  std::span<const uint64_t> keys;    // Without duplicates.
  std::span<const float> gradients;  // [keys][width]
  double learning_rate = 0;
};

// A read of rows of one table. Pull fills `rows`.
struct RowRead {
  int table = 0;
  std::span<const uint64_t> keys;  // Without duplicates.
  std::span<float> rows;           // [keys][width]
};

class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;
  // Reads rows of several tables. Each table occurs at most once. Reads from servers are sent
  // together. The rows include all earlier pushes to this store. A row without a push has its
  // initial value.
  virtual absl::Status Pull(std::span<const RowRead> reads) = 0;
  // Makes one update of each row. `step` counts from 1. `tables` has one element for each table. A
  // table without keys stays unchanged.
  virtual absl::Status Push(int64_t step, std::span<const RowGradients> tables) = 0;
};

// The tables of this process, which its replicas share. The gradients of a step are summed over all
// replicas before Push, so every replica pushes the same ones. The first push is applied, and the
// others wait for it. Thread-safe.
class LocalEmbeddings : public EmbeddingStore {
 public:
  explicit LocalEmbeddings(std::vector<push_pull::EmbeddingTable::Options> options);

  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  int size() const { return static_cast<int>(tables_.size()); }
  push_pull::EmbeddingTable& table(int index) { return *tables_[index]; }
  const push_pull::EmbeddingTable& table(int index) const { return *tables_[index]; }
  const push_pull::EmbeddingTable::Options& options(int index) const { return options_[index]; }
  // Reset removes all rows, before another state is restored. set_step sets the last applied step.
  // Both require that no replica is in a step.
  void Reset(int index);
  void set_step(int64_t step);

  // Returns a 64-bit digest of all rows, for comparing replicas. It does not depend on the order of
  // rows.
  uint64_t Digest() const;
  // Returns a number that is unique among all stores.
  uint64_t identity() const { return identity_; }

 private:
  const std::vector<push_pull::EmbeddingTable::Options> options_;
  const uint64_t identity_;
  std::vector<std::unique_ptr<push_pull::EmbeddingTable>> tables_;
  absl::Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // The last step that was applied.
};

}  // namespace muster
