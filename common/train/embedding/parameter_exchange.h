// Sends the gradients of a worker to parameter servers, and receives parameters. Each optimizer of
// the replica has a sink for its gradients (PushedGradients). A chunk is a range of a server's
// parameters. It is sent as soon as its gradients are complete, while the backward pass still runs.
// The reply with the new parameters is written to the replica's own parameters.
//
// Floating-point buffers that steps change (running statistics) are part of the step's last push.
// The worker pushes the change that the step made. The servers apply the change divided by the
// number of workers, so that statistics change as fast as with one worker. Buffers declared kSame
// are not pushed. If a program changes one, the step fails.
//
// A chunk without a gradient in a step is not pushed. As in synchronous training, its slots stay
// unchanged and no weight decay is applied. Such a chunk is pulled if other workers have changed
// it.
//
// Rows of embedding tables are pulled when a step looks them up. Their gradients are pushed
// separately, at the step's commit. The rows of keys that the program's prefetch() names are pulled
// during the previous step. If this worker pushes one of these keys afterwards, the row is pulled
// again. A step therefore sees all earlier pushes of this worker.
//
// Used by the replica's thread. Prefetch is called by the thread that loads the batch. Autograd may
// deliver gradients in a thread of its own.
#pragma once

#include <functional>
#include <map>
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
                                                                 push_pull::Layout layout);
  ~ParameterExchange() override;

  const std::vector<push_pull::VariableSpec>& variables() const { return served_.specs; }
  const push_pull::Layout& layout() const { return layout_; }
  // Returns the host memory of the parameters, for ClientOptions::parameters. On a CPU replica it
  // is the memory of the replica's own parameters.
  std::vector<std::vector<std::span<float>>> parameters() const;
  // Sets the client, which must stay valid until the next call. `client` may be null. Rows that the
  // previous client prefetched become invalid. Called between steps.
  void UseClient(push_pull::PushPullClient* client);
  // Sets a function that is called with true before a wait for servers, and with false after it.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // Returns one sink for each optimizer, for Replica::Attach. This object must outlive the sinks.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks();

  absl::Status Pull();

  // Thread-safe. Calls the program's prefetch() for the keys that the batch will look up, and
  // starts pulling their rows. Returns null if the program names no key or there is no client.
  // Returns an error if prefetch() fails.
  absl::StatusOr<std::shared_ptr<PrefetchedRows>> Prefetch(Replica* replica,
                                                           const data::Batch& batch);

  // Begins a step on the batch of `lease`. `weight` is the factor for the changes of buffers: 1 /
  // number of workers. `rows` has the rows that were prefetched for this batch. It may be null.
  void BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows = nullptr, int64_t lease = 0);
  // Pushes the buffers unless a sink has already pushed them. Called after the step's commit.
  absl::Status FinishStep();
  // The methods of EmbeddingStore.
  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  // Returns the number of the last push.
  uint64_t sequence() const { return sequence_; }
  // Returns the time at which the last step with a push began its first push. All parameters of
  // this replica were received after that time.
  MonotonicTime push_began() const { return push_began_; }
  // Returns the outcome of all pushes since BeginStep.
  const push_pull::PushPullClient::Outcome& outcome() const { return outcome_; }
  // Returns the variables whose gradient, or change of a buffer, the servers have refused since
  // BeginStep because it is not finite.
  const std::set<std::string>& not_finite() const { return not_finite_; }

 private:
  friend class PushedGradients;
  struct Part {
    // The range of the variable's first dimension. A 0-dimensional variable counts as one row.
    int64_t first_row = 0, rows = 0;
    int64_t begin = 0;        // Index of the first element in the variable's memory.
    std::span<float> memory;  // The place of the gradient in the client's memory.
    at::Tensor view;          // `memory` as a tensor with the variable's strides.
  };
  struct Variable {
    at::Tensor tensor, host;  // On a CPU replica, both are the same tensor.
    std::vector<Part> parts;
    std::vector<int> chunks;  // Indices into chunks_.
    bool used = false;        // True if it has a gradient in this reduction.
    bool buffer = false;      // True if steps change it and it has no optimizer.
    at::Tensor before;        // A buffer's value at the start of the step.
    bool floor = false;  // True for a buffer without negative values before and after the step.
    // True for a buffer that is declared kSame. `before` is then its value at the last pull, and
    // undefined before the first pull.
    bool same = false;
  };
  struct ChunkPlace {
    push_pull::Chunk chunk;
    int index = 0;  // Index of the chunk within its server.
    std::vector<int> variables;
    int pending = 0;
    bool used = false;  // True if a variable of the chunk has a gradient.
    bool launched = false;
    bool fresh = false;  // True if it was pushed or pulled in this step.
    bool buffers = false;
  };

  ParameterExchange(push_pull::Layout layout, ServedVariables served)
      : layout_(std::move(layout)), served_(std::move(served)) {}
  // Called once, by Make. Calls AddChunks, AddVariables, MarkBuffers, LayOutTables, FindParameters
  // and AddPart, in this order.
  void BuildLayout(const Replica& replica);
  // Index into variables_, by the address of the variable's first element.
  using VariablesByMemory = std::map<const void*, int>;
  // Returns the indices into chunks_, by server.
  std::vector<std::vector<int>> AddChunks();
  VariablesByMemory AddVariables();
  // Marks the variables that are buffers: those that steps change, and those declared kSame.
  void MarkBuffers(const Replica& replica, const VariablesByMemory& by_memory);
  // Finds the variable of each parameter of the program's optimizers.
  void FindParameters(const Replica& replica, const VariablesByMemory& by_memory);
  // Links a part of a variable with the chunks that have it. `of_server` has the chunks of its
  // server.
  void AddPart(const push_pull::VariablePart& part, const std::vector<int>& of_server);
  bool clips(int optimizer) const;
  // Copies the gradient to the client's memory, or adds it to the gradient there if `add` is true.
  void Write(int variable, const at::Tensor& gradient, bool add);
  void Clear(int variable);
  // Returns a ProgramError if a kSame buffer differs from its value at the last pull.
  absl::Status CheckSameBuffers() const;
  using What = push_pull::PushPullClient::What;
  void Launch(int chunk, What what = What::kGradient);
  void LaunchRest();
  // Writes before - after, which the servers subtract, to the client's memory. Returns false if the
  // buffer is unchanged or the weight is 0.
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
  // Copies received values to the device, or marks CPU tensors as changed. Variables without an
  // optimizer are included if `rest` is true.
  void CopyToDevice(bool rest);

  const push_pull::Layout layout_;
  const ServedVariables served_;
  std::vector<Variable> variables_;
  std::vector<ChunkPlace> chunks_;
  // An embedding table on the servers.
  struct Table {
    int variable = 0;
    std::vector<int> first_chunk;
    int64_t width = 0;
    // Indexed by the chunk of RowSpread: the smallest RowPull::others of the pulls that this step
    // used.
    std::vector<std::optional<int64_t>> others;
    int servers() const { return static_cast<int>(first_chunk.size()); }
  };
  void LayOutTables();
  static push_pull::RowPlace PlaceOfChunk(const Table& table, size_t chunk);
  static std::shared_ptr<push_pull::RowFetch> MakeFetch(const Table& table,
                                                        push_pull::RowSpread* spread);
  static void NoteOthers(const push_pull::RowFetch& fetch, const std::vector<bool>* used,
                         Table* table);
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
  // Held while rows are pushed or prefetched. The order of these calls determines which pushes a
  // prefetch includes.
  absl::Mutex mutex_;
  push_pull::PushPullClient* prefetching_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Equals client_.
  int clients_ ABSL_GUARDED_BY(mutex_) = 0;
  // Prefetched rows of later steps.
  std::vector<std::weak_ptr<PrefetchedRows>> ahead_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> packed_;                           // Gradients of rows that are sent now.
  std::vector<std::vector<int>> chunks_of_;             // Indexed by the program's optimizer.
  std::vector<int> rest_;                               // Chunks without an optimizer.
  std::vector<std::vector<at::Tensor>> parameters_of_;  // Indexed by optimizer.
  // Indexed by optimizer, then parameter. -1 if the parameter has no elements.
  std::vector<std::vector<int>> variable_of_;
  std::vector<ClipOptions> clips_;  // Indexed by optimizer.
  // True in a float16 run. Gradients may then be infinite, so they are collected completely and
  // checked before any is sent.
  bool whole_ = false;
  push_pull::PushPullClient* client_ = nullptr;
  std::function<void(bool)> on_wait_;
  double weight_ = 1;                   // Argument of BeginStep.
  int64_t lease_ = 0;                   // Argument of BeginStep.
  std::vector<double> learning_rates_;  // Indexed by the servers' optimizer.
  bool open_ = false;
  bool rest_done_ = false;
  absl::Status refused_;  // The error if this step changed a kSame buffer.
  uint64_t sequence_ = 0;
  int64_t pushes_ = 0;  // Pushes of this step.
  MonotonicTime push_began_;
  push_pull::PushPullClient::Outcome outcome_;
  std::set<std::string> not_finite_;
};

// Returns the error for a program that changed buffer `name`, which is declared kSame.
absl::Status ChangedSameBuffer(const std::string& name);

}  // namespace muster
