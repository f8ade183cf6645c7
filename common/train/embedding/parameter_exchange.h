// Sends a worker's gradients to parameter servers and receives parameters. Each optimizer of the
// replica has a sink (PushedGradients). A chunk is launched as soon as its gradients are complete,
// while the rest of the backward pass runs. The answer is written into the replica's own
// parameters.
//
// Floating-point variables without an optimizer (running statistics) are pushed with the step's
// last push. The pushed value is the change that the step made. The servers apply the worker's
// share of it (1 / number of workers), so that the statistics move as far as those of a single
// worker. Buffers declared kSame are not pushed: a program that changes them is refused.
//
// A chunk without a gradient in a step is not pushed: no slot moves and no decay is applied, as in
// synchronous training. It is pulled if other workers have changed it.
//
// Rows of embedding tables are pulled when a step looks them up. Their gradients are a separate
// push at the step's commit. Keys that a program's prefetch() names are pulled during the previous
// step. If this worker pushes such a key afterwards, the key is pulled again, so that a step sees
// all of this worker's earlier pushes.
//
// Used by the replica's thread, except Prefetch. Gradients may also come from autograd's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/job/job.h"
#include "common/optim/optimizer_spec.h"
#include "common/push_pull/client.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/train/replica/gradient_sink.h"
#include "common/train/replica/replica.h"
#include "common/train/state/variables.h"

namespace muster {

struct PrefetchedRows;

class ParameterExchange : public EmbeddingStore {
 public:
  static absl::StatusOr<std::unique_ptr<ParameterExchange>> Make(const Replica& replica,
                                                                 const Job& job,
                                                                 ServedVariables served,
                                                                 Layout layout);
  ~ParameterExchange() override;

  const std::vector<VariableSpec>& variables() const { return served_.specs; }
  const Layout& layout() const { return layout_; }
  // Returns ClientOptions::parameters: host memory, which is the replica's own on a CPU replica.
  std::vector<std::vector<std::span<float>>> parameters() const;
  // Sets the client, between steps or before the first. The client must outlive its use. Rows that
  // the previous client prefetched become invalid. Null: no client until the next call.
  void UseClient(ps::PushPullClient* client);
  // The function is called with true before this object waits for servers, and with false
  // afterwards.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // Returns one sink for each optimizer, for Replica::Attach. This object must outlive them.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks();

  absl::Status Pull();

  // Thread-safe. Asks the program which rows this batch will look up, and launches the pulls.
  // Returns null if the program names none or there is no client. Errors are the program's own.
  absl::StatusOr<std::shared_ptr<PrefetchedRows>> Prefetch(Replica* replica,
                                                           const data::Batch& batch);

  // Begins a step on the batch of this lease. `weight` scales the differences of buffers: 1 /
  // number of workers. `rows`: the rows prefetched for this batch, or null.
  void BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows = nullptr, int64_t lease = 0);
  // Called after the step's commit: pushes the buffers that no sink has pushed.
  absl::Status FinishStep();
  // EmbeddingStore
  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  // Returns the number of the last push.
  uint64_t sequence() const { return sequence_; }
  // Returns the time at which the last step with a push began its first push. All parameters were
  // received after that time.
  MonotonicTime push_began() const { return push_began_; }
  // Returns the outcome of all pushes since BeginStep.
  const ps::PushPullClient::Outcome& outcome() const { return outcome_; }
  // Returns the names of variables with values that are not finite, since BeginStep. These are
  // gradients that the servers refused, or changes of a buffer.
  const std::set<std::string>& not_finite() const { return not_finite_; }

 private:
  friend class PushedGradients;
  struct Part {
    // Rows of the variable. 0-dimensional variables have no rows.
    int64_t first_row = 0, rows = 0;
    int64_t begin = 0;        // First element in the variable's memory.
    std::span<float> memory;  // Part of the client's gradient memory.
    at::Tensor view;          // The same memory, with the variable's strides.
  };
  struct Variable {
    at::Tensor tensor, host;  // `host` is the same tensor on a CPU replica.
    std::vector<Part> parts;
    std::vector<int> chunks;  // Indices into chunks_.
    bool used = false;        // Has a gradient in this reduction.
    bool buffer = false;      // Belongs to no optimizer, and steps change it.
    at::Tensor before;        // For a buffer: its value at the start of the step.
    bool floor = false;       // For a buffer: it had no negative value before or after the step.
    // Belongs to no optimizer, and is declared kSame. `before` is its value at the last pull. It
    // is undefined before the first pull.
    bool same = false;
  };
  struct ChunkPlace {
    Chunk chunk;
    int index = 0;  // Index within its server.
    std::vector<int> variables;
    int pending = 0;
    bool used = false;  // A variable of the chunk has a gradient.
    bool launched = false;
    bool fresh = false;  // Pushed or pulled in this step.
    bool buffers = false;
  };

  ParameterExchange(Layout layout, ServedVariables served)
      : layout_(std::move(layout)), served_(std::move(served)) {}
  void BuildLayout(const Replica& replica);
  bool clips(int optimizer) const;
  // Writes this gradient to the client's memory, or adds it.
  void Write(int variable, const at::Tensor& gradient, bool add);
  void Clear(int variable);
  // Returns a ProgramError for a kSame buffer that differs from the pulled value. No worker pushes
  // these buffers.
  absl::Status CheckSameBuffers() const;
  using What = ps::PushPullClient::What;
  void Launch(int chunk, What what = What::kGradient);
  void LaunchRest();
  // Writes before - after, which the servers subtract. Returns false if the buffer is unchanged or
  // the weight is 0.
  bool WriteDifference(Variable& variable);
  void Open();
  absl::Status Wait();
  template <typename Call>
  auto Waiting(const Call& call) const {
    if (on_wait_) on_wait_(true);
    auto result = call();
    if (on_wait_) on_wait_(false);
    return result;
  }
  void NoteRefused(const std::set<std::pair<int, int>>& chunks);
  // Copies received values to the device, or marks CPU tensors as changed. `rest` includes the
  // variables without an optimizer.
  void CopyToDevice(bool rest);

  const Layout layout_;
  const ServedVariables served_;
  std::vector<Variable> variables_;
  std::vector<ChunkPlace> chunks_;
  // An embedding table: its index among variables, and its first chunk on each server.
  struct Table {
    int variable = 0;
    std::vector<int> first_chunk;
    int64_t width = 0;
    // Indexed by RowSpread's chunk. The `others` of the earliest RowPull that this step used.
    std::vector<std::optional<int64_t>> others;
    int servers() const { return static_cast<int>(first_chunk.size()); }
  };
  void LayTables();
  static RowPlace PlaceOfChunk(const Table& table, size_t chunk);
  static std::shared_ptr<ps::RowFetch> MakeFetch(const Table& table, RowSpread* spread);
  static void NoteOthers(const ps::RowFetch& fetch, const std::vector<bool>* used, Table* table);
  struct Asked;
  void Ask(const RowRead& read, std::span<const size_t> places, std::vector<Asked>* all);
  absl::Status PullRows(std::span<const RowRead> reads);
  void FetchAsked(const std::vector<Asked>& all, size_t known);
  absl::Status TakePrefetched(const RowRead& read, std::vector<Asked>* all);
  void FetchAgain(std::span<const RowGradients> pushed,
                  std::span<const std::shared_ptr<PrefetchedRows>> ahead);
  void BeginRows(std::shared_ptr<PrefetchedRows> rows);
  std::vector<std::shared_ptr<PrefetchedRows>> AheadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<Table> tables_;
  std::shared_ptr<PrefetchedRows> prefetched_;  // The rows prefetched for this step.
  // Held while rows are launched, so that the order of launches shows which pushes a prefetch
  // includes.
  absl::Mutex mutex_;
  ps::PushPullClient* prefetching_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Equal to client_.
  int clients_ ABSL_GUARDED_BY(mutex_) = 0;
  // Rows for later steps.
  std::vector<std::weak_ptr<PrefetchedRows>> ahead_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> packed_;                           // Gradients of rows that are being sent.
  std::vector<std::vector<int>> chunks_of_;             // Indexed by the program's optimizer.
  std::vector<int> rest_;                               // Chunks of no optimizer.
  std::vector<std::vector<at::Tensor>> parameters_of_;  // Indexed by optimizer.
  // Indexed by optimizer, then parameter. -1: it has no elements.
  std::vector<std::vector<int>> variable_of_;
  std::vector<ClipOptions> clips_;  // Indexed by optimizer.
  // Gradients are collected completely before they are sent, because they may not be finite.
  bool whole_ = false;
  ps::PushPullClient* client_ = nullptr;
  std::function<void(bool)> on_wait_;
  double weight_ = 1;                   // Argument of BeginStep.
  int64_t lease_ = 0;                   // Argument of BeginStep.
  std::vector<double> learning_rates_;  // Indexed by the servers' optimizer.
  bool open_ = false;
  bool rest_done_ = false;
  absl::Status refused_;  // The step's error about a buffer that must not change.
  uint64_t sequence_ = 0;
  int64_t pushes_ = 0;  // Pushes of this step.
  MonotonicTime push_began_;
  ps::PushPullClient::Outcome outcome_;
  std::set<std::string> not_finite_;
};

// Returns the error for a program that changed this buffer although it is declared kSame.
absl::Status ChangedSameBuffer(const std::string& name);

}  // namespace muster
