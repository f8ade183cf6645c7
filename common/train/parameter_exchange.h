// A worker's gradients on their way to parameter servers, and parameters on their way back. Each
// optimizer of the replica has a sink (PushedGradients): as soon as the gradients of a chunk are
// complete, the chunk is launched, while the rest of the backward pass runs, and what comes back
// is in the replica's own parameters.
//
// What belongs to no optimizer and is floating point (running statistics) travels as the difference
// that the step made to it, with the step's last push, but for buffers declared kSame: a program
// that changes them is refused; the servers take each worker's part of it,
// so that the statistics move as far as one worker's own however many there are.
//
// Of chunks that have no gradient in a step nothing is pushed: no slot moves and nothing decays, as
// in synchronous training. They are pulled where others have changed them.
//
// Rows of embedding tables are pulled when a step looks them up, and their gradients travel as a
// push of their own when it commits. Those of the keys that a program's prefetch() names are pulled
// while the step before is computed; what this worker pushes after that is pulled again, so that a
// step sees all own earlier pushes.
//
// For the replica's thread, but for Prefetch; gradients may come from autograd's own.
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
#include "common/push_pull/client.h"
#include "common/push_pull/optimizer_spec.h"
#include "common/push_pull/row_spread.h"
#include "common/train/gradient_sink.h"
#include "common/train/job.h"
#include "common/train/replica.h"
#include "common/train/variables.h"

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
  // ClientOptions::parameters. Host memory: the replica's own where that is on the CPU.
  std::vector<std::vector<std::span<float>>> parameters() const;
  // Between steps, and before the first; the client outlives its use. What was prefetched with the
  // one before is void. Null: none until the next call.
  void UseClient(ps::PushPullClient* client);
  // Called with true before this waits for servers, and with false after it.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // One for each optimizer, for Replica::Attach; this object outlives them.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks();

  absl::Status Pull();

  // Any thread: asks the program what this batch will look up, and launches the pulls. Null
  // where it names nothing, or there is no client. The program's own errors.
  absl::StatusOr<std::shared_ptr<PrefetchedRows>> Prefetch(Replica* replica,
                                                           const data::Batch& batch);

  // Of the batch of that lease. `weight`: of the differences of buffers, one part in the number of
  // workers. With the rows that were prefetched for the step's batch, if any.
  void BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows = nullptr, int64_t lease = 0);
  // After the step has committed: pushes buffers that no sink took along.
  absl::Status FinishStep();
  // EmbeddingStore
  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  // Of the last push.
  uint64_t sequence() const { return sequence_; }
  // Of the last step that pushed something, its first push: all parameters came after that.
  MonotonicTime push_began() const { return push_began_; }
  // Of all pushes since BeginStep.
  const ps::PushPullClient::Outcome& outcome() const { return outcome_; }
  // ... by name: what servers left as it was, for its gradients, or what the step made of a buffer,
  // are not finite.
  const std::set<std::string>& not_finite() const { return not_finite_; }

 private:
  friend class PushedGradients;
  struct Part {
    int64_t first_row = 0, rows = 0;  // of the variable; 0-dimensional ones have no rows
    int64_t begin = 0;                // element of the variable's memory
    std::span<float> memory;          // of the client's gradients
    at::Tensor view;                  // ... with the variable's strides
  };
  struct Variable {
    at::Tensor tensor, host;  // the same where the replica is on the CPU
    std::vector<Part> parts;
    std::vector<int> chunks;  // into chunks_
    bool used = false;        // has a gradient in this reduction
    bool buffer = false;      // of the rest, and changed by steps
    at::Tensor before;        // of a buffer: at the step's beginning
    bool floor = false;       // ... it has no negative number, then and now
    bool same = false;  // of the rest, and declared kSame; `before`: as it was pulled, if ever
  };
  struct ChunkPlace {
    Chunk chunk;
    int index = 0;  // of its server
    std::vector<int> variables;
    int pending = 0;
    bool used = false;  // some variable of it has a gradient
    bool launched = false;
    bool fresh = false;  // pushed or pulled in this step
    bool buffers = false;
  };

  ParameterExchange(Layout layout, ServedVariables served)
      : layout_(std::move(layout)), served_(std::move(served)) {}
  void Lay(const Replica& replica);
  bool clips(int optimizer) const;
  // Zero rows, or this gradient's.
  void Write(int variable, const at::Tensor& gradient, bool add);
  void Clear(int variable);
  // A ProgramError names a buffer declared kSame that is not as it was pulled: nobody pushes those.
  absl::Status CheckSameBuffers() const;
  using What = ps::PushPullClient::What;
  void Launch(int chunk, What what = What::kGradient);
  void LaunchRest();
  // The difference is what the servers take away. False: there is none, or it does not count.
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
  // What came, on devices that are not the host's; of what belongs to no optimizer if `rest`.
  void TakeIn(bool rest);

  const Layout layout_;
  const ServedVariables served_;
  std::vector<Variable> variables_;
  std::vector<ChunkPlace> chunks_;
  // An embedding table's place among variables, and its first chunk on each server.
  struct Table {
    int variable = 0;
    std::vector<int> first_chunk;
    int64_t width = 0;
    // By RowSpread's chunk: RowPull's, of the earliest pull that this step used.
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
  std::shared_ptr<PrefetchedRows> prefetched_;  // for this step
  // Held while rows are launched: which push a prefetch contains is seen in the order of both.
  absl::Mutex mutex_;
  ps::PushPullClient* prefetching_ ABSL_GUARDED_BY(mutex_) = nullptr;  // client_
  int clients_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<PrefetchedRows>> ahead_ ABSL_GUARDED_BY(mutex_);  // for later steps
  std::vector<float> packed_;                           // gradients of rows, on their way
  std::vector<std::vector<int>> chunks_of_;             // by the program's optimizer
  std::vector<int> rest_;                               // chunks
  std::vector<std::vector<at::Tensor>> parameters_of_;  // by optimizer
  std::vector<std::vector<int>> variable_of_;           // likewise; -1: has no elements
  std::vector<ClipOptions> clips_;                      // by optimizer
  bool whole_ = false;  // gradients are wanted whole before they go: they may not be finite
  ps::PushPullClient* client_ = nullptr;
  std::function<void(bool)> on_wait_;
  double weight_ = 1;                   // BeginStep's
  int64_t lease_ = 0;                   // likewise
  std::vector<double> learning_rates_;  // by the servers' optimizer
  bool open_ = false;
  bool rest_done_ = false;
  absl::Status refused_;  // of the step: a buffer that must not change
  uint64_t sequence_ = 0;
  int64_t pushes_ = 0;  // of this step
  MonotonicTime push_began_;
  ps::PushPullClient::Outcome outcome_;
  std::set<std::string> not_finite_;
};

// Refuses the program that changed this buffer, which it had declared kSame.
absl::Status ChangedSameBuffer(const std::string& name);

}  // namespace muster
