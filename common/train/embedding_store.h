// Where the rows of a program's embedding tables are, as a replica's step sees them: in this
// process, or on parameter servers. A step reads rows while it computes, and changes them once, at
// its commit. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/embedding_table.h"
#include "muster/status.h"

namespace muster {

// One table's part of one step.
struct RowGradients {
  std::span<const uint64_t> keys;    // all different
  std::span<const float> gradients;  // [keys][width]
  double learning_rate = 0;
};

// What a step reads of one table.
struct RowRead {
  int table = 0;
  std::span<const uint64_t> keys;  // all different
  std::span<float> rows;           // [keys][width]
};

class EmbeddingStore {
 public:
  virtual ~EmbeddingStore() = default;
  // Of several tables, each at most once: what is remote is asked for together. The rows contain
  // all that this store was given to push. One that nobody has pushed to reads as it would begin.
  virtual absl::Status Pull(std::span<const RowRead> reads) = 0;
  // One update of each row, by the number of the step (from 1); one element for each table. A table
  // without keys stays as it is.
  virtual absl::Status Push(int64_t step, std::span<const RowGradients> tables) = 0;
};

// Tables in this process, shared by its replicas. Every replica brings the same gradients of a
// step, summed over all of them: the first one's are applied, and the others wait until they are.
// Any thread.
class LocalEmbeddings : public EmbeddingStore {
 public:
  explicit LocalEmbeddings(std::vector<EmbeddingTable::Options> options);

  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  int size() const { return static_cast<int>(tables_.size()); }
  EmbeddingTable& table(int index) { return *tables_[index]; }
  const EmbeddingTable& table(int index) const { return *tables_[index]; }
  const EmbeddingTable::Options& options(int index) const { return options_[index]; }
  // Takes all rows away: they are about to be restored as they were after `step`. REQUIRES: no
  // replica is in a step.
  void Reset(int index);
  void set_step(int64_t step);

  // 64 bits over all rows in any order, to compare replicas.
  uint64_t Digest() const;
  // A number that no other store has.
  uint64_t identity() const { return identity_; }

 private:
  const std::vector<EmbeddingTable::Options> options_;
  const uint64_t identity_;
  std::vector<std::unique_ptr<EmbeddingTable>> tables_;
  absl::Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one that was applied
};

}  // namespace muster
