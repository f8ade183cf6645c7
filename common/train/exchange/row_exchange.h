// Exchanges embedding rows and their gradients with parameter servers. Rows are pulled when a step
// looks them up. Their gradients are pushed at the end of the step, in a separate push.
//
// A program can name keys of the next batch in its prefetch(). The rows of these keys are then
// pulled during the current step. If this worker pushes a gradient of such a row after that pull,
// the worker pulls the row again. A step therefore sees all earlier pushes of this worker.
//
// A ParameterExchange owns this object. parameter_exchange.h documents steps and pushes. Used by
// the replica's thread, with one exception: the thread that loads batches calls Prefetch. Internal
// to this folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/client.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/train/replica/replica.h"
#include "common/train/state/variables.h"

namespace muster {

struct PrefetchedRows;

class RowExchange {
 public:
  RowExchange(const ServedVariables& served, const push_pull::Layout& layout);

  // FinishStep ends a step. For the other functions up to Pull, see the functions of the same names
  // in parameter_exchange.h.
  void UseClient(push_pull::PushPullClient* client);
  absl::StatusOr<std::shared_ptr<PrefetchedRows>> Prefetch(Replica* replica,
                                                           const data::Batch& batch);
  void BeginStep(std::shared_ptr<PrefetchedRows> rows);
  void FinishStep() { prefetched_.reset(); }
  absl::Status Pull(std::span<const RowRead> reads);
  // Pushes the gradients of `tables`. If there are no gradients, does nothing and
  // returns false. First writes RowGradients::learning_rate of each table to
  // `learning_rates`, which is indexed by the servers' optimizer. Then calls `open` to
  // begin the push. Then starts to send. Between `open` and the start of sending, no
  // prefetch is sent. Last, fetches pushed rows again if they were prefetched for later
  // batches.
  bool Push(std::span<const RowGradients> tables, std::span<double> learning_rates,
            const std::function<void()>& open);

 private:
  // An embedding table on the servers.
  struct Table {
    int optimizer = 0;             // Index of the servers' optimizer.
    std::vector<int> first_chunk;  // Indexed by server: the index of the table's first chunk there.
    int64_t width = 0;
    // Indexed by the table's chunks, as numbered in RowSpread. A pull of rows returns how many
    // updates other workers have made to the chunk (RowPull::others). `others` holds, for each
    // chunk, the smallest of these numbers among the pulls that this step uses. nullopt if the step
    // uses no pull of the chunk.
    std::vector<std::optional<int64_t>> others;
    int servers() const { return static_cast<int>(first_chunk.size()); }
  };
  static push_pull::RowPlace PlaceOfChunk(const Table& table, size_t chunk);
  static std::shared_ptr<push_pull::RowFetch> MakeFetch(const Table& table,
                                                        push_pull::RowSpread* spread);
  static void NoteOthers(const push_pull::RowFetch& fetch, const std::vector<bool>* used,
                         Table* table);
  // Functions for row pulls. row_exchange.cc documents them.
  struct Asked;
  void Ask(const RowRead& read, std::span<const size_t> places, std::vector<Asked>* all);
  void FetchAsked(const std::vector<Asked>& all, size_t known);
  absl::Status TakePrefetched(const RowRead& read, std::vector<Asked>* all);
  void FetchAgain(std::span<const RowGradients> pushed,
                  std::span<const std::shared_ptr<PrefetchedRows>> ahead);
  std::vector<std::shared_ptr<PrefetchedRows>> AheadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<Table> tables_;
  push_pull::PushPullClient* client_ = nullptr;
  // The rows that were prefetched for this step. May be null.
  std::shared_ptr<PrefetchedRows> prefetched_;
  std::vector<float> packed_;  // Keys and gradients of the rows in the open push.
  // Held while a push or prefetch of rows is sent. The order of sending determines which pushes the
  // prefetched rows include.
  absl::Mutex mutex_;
  // A copy of client_, for Prefetch, which another thread calls.
  push_pull::PushPullClient* prefetching_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The number of calls of UseClient. This number identifies the current client.
  int clients_ ABSL_GUARDED_BY(mutex_) = 0;
  // The rows that are prefetched for later steps.
  std::vector<std::weak_ptr<PrefetchedRows>> ahead_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
