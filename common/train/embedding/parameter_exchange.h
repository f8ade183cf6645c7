// Exchanges gradients and parameters of a worker with parameter servers. A worker has one replica
// (copy of the model on one device), with its own thread. To push is to send gradients, and to pull
// is to receive parameters. A variable is a parameter, a floating-point buffer or an embedding
// table of the program.
//
// A chunk is a range of a server's memory that belongs to one optimizer. Each optimizer of the
// replica has a sink for its gradients (PushedGradients). A chunk is pushed as soon as all its
// gradients are complete, while the backward pass still runs. The server answers with the new
// parameters of the chunk, which are written to the replica's own parameters.
//
// A chunk without a gradient in a step is not pushed. Its slots therefore stay unchanged, and
// weight decay does not apply, as in synchronous training. The worker pulls such a chunk if other
// workers have changed it.
//
// "The rest" are the variables without an optimizer. Buffers that steps change, such as running
// statistics, are pushed at the end of the step. The worker pushes the change that the step made.
// The servers apply the change divided by the number of workers. Statistics therefore change as
// fast as with one worker. Buffers declared kSame are not pushed. If a program changes one, the
// step fails.
//
// RowExchange exchanges the rows of embedding tables.
//
// Used by the replica's thread, with two exceptions. The thread that loads batches calls Prefetch.
// Autograd may deliver gradients in a thread of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/job/job.h"
#include "common/optim/optimizer_spec.h"
#include "common/push_pull/client.h"
#include "common/train/embedding/row_exchange.h"
#include "common/train/replica/gradient_sink.h"
#include "common/train/replica/replica.h"
#include "common/train/state/variables.h"

namespace muster {

class ParameterExchange : public EmbeddingStore {
 public:
  // `served` has the variables (VariablesToServe), and `layout` says which server has which part.
  static absl::StatusOr<std::unique_ptr<ParameterExchange>> Make(const Replica& replica,
                                                                 const Job& job,
                                                                 ServedVariables served,
                                                                 push_pull::Layout layout);

  const std::vector<push_pull::VariableSpec>& variables() const { return served_.specs; }
  const push_pull::Layout& layout() const { return layout_; }
  // Returns the host memory that receives pulled variables, for ClientOptions::parameters. On a CPU
  // replica, it is the memory of the replica's own tensors.
  std::vector<std::vector<std::span<float>>> parameters() const;
  // Sets the client that sends and receives. It must stay valid until the next call of UseClient.
  // `client` may be null. Rows that an earlier client has prefetched become invalid. Called between
  // steps.
  void UseClient(push_pull::PushPullClient* client);
  // Sets a function that is called with `true` before each wait for servers, and with `false` after
  // it.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // Returns one gradient sink for each optimizer, as the argument of Replica::Attach. This object
  // must outlive the sinks.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks();

  // Receives the newest values of all variables except embedding tables. Blocks. Returns a
  // ProgramError if the program has changed a kSame buffer.
  absl::Status Pull();

  // Thread-safe. Calls the program's prefetch() with `batch`, and starts to pull the rows of the
  // keys that it names. Does not wait for the rows. Returns null if the program names no key or
  // there is no client. Returns an error if prefetch() fails.
  absl::StatusOr<std::shared_ptr<PrefetchedRows>> Prefetch(Replica* replica,
                                                           const data::Batch& batch) {
    return rows_.Prefetch(replica, batch);
  }

  // Begins a step. `weight` is the factor for the changes of buffers: 1 / number of workers. `rows`
  // is the result of Prefetch for the batch of this step, and may be null. `lease` is the number of
  // the lease, the chief's assignment of the batch to this worker.
  void BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows = nullptr, int64_t lease = 0);
  // Ends a step. Pushes the changed buffers, if no sink has pushed them in this step. Called after
  // the step has completed.
  absl::Status FinishStep();
  // The methods of EmbeddingStore, for rows on the servers.
  absl::Status Pull(std::span<const RowRead> reads) override;
  absl::Status Push(int64_t step, std::span<const RowGradients> tables) override;

  // Returns the sequence number of the last push.
  uint64_t sequence() const { return sequence_; }
  // Returns the time at which the current step began its first push. If that step has not pushed,
  // the time belongs to the newest step that has. All current parameters of this replica were
  // received after that time.
  MonotonicTime push_began() const { return push_began_; }
  // Returns the combined outcome of all pushes since BeginStep, such as their staleness.
  const push_pull::PushPullClient::Outcome& outcome() const { return outcome_; }
  // Returns the names of the variables that servers have refused to update since BeginStep. A
  // server refuses a gradient, or the change of a buffer, that is not finite.
  const std::set<std::string>& not_finite() const { return not_finite_; }

 private:
  friend class PushedGradients;
  // A part of a variable. A server holds each part in one piece of memory.
  struct Part {
    // The range of the variable's first dimension. A 0-dimensional variable has one row.
    int64_t first_row = 0, rows = 0;
    int64_t begin = 0;        // Index of the first element in the variable's memory.
    std::span<float> memory;  // The client's memory for the gradient of this part.
    at::Tensor view;          // `memory` as a tensor with the variable's strides.
  };
  struct Variable {
    // The replica's own tensor, and its copy on the CPU. On a CPU replica, both are the same
    // tensor.
    at::Tensor tensor, host;
    std::vector<Part> parts;
    std::vector<int> chunks;  // Indices into chunks_.
    bool used = false;        // True if the variable has a gradient in this reduction.
    // True for a floating-point buffer that is not declared kSame. The worker pushes its changes.
    bool buffer = false;
    at::Tensor before;  // The value of a buffer at the start of the step.
    // True for a buffer whose values are at least 0 before and after the step.
    bool floor = false;
    // True for a buffer that is declared kSame. `before` is then the value at the last pull. Before
    // the first pull, `before` is undefined.
    bool same = false;
  };
  // A chunk, and its state in the current step.
  struct ChunkPlace {
    push_pull::Chunk chunk;
    int index = 0;               // Index of the chunk within its server.
    std::vector<int> variables;  // Indices into variables_.
    int pending = 0;             // Variables whose gradient is missing in this micro-batch.
    bool used = false;           // True if a variable of the chunk has a gradient.
    bool launched = false;       // True if the chunk was pushed or pulled in this reduction.
    bool fresh = false;          // True if the chunk was pushed or pulled in this step.
    bool buffers = false;        // True if a variable of the chunk is a buffer.
  };

  ParameterExchange(push_pull::Layout layout, ServedVariables served)
      : layout_(std::move(layout)), served_(std::move(served)), rows_(served_, layout_) {}
  // Called once, by Make. Calls the functions below, in the order AddChunks, AddVariables,
  // MarkBuffers, FindParameters, AddPart.
  void BuildLayout(const Replica& replica);
  // Maps the address of a variable's first element to an index into variables_.
  using VariablesByMemory = std::map<const void*, int>;
  // Returns the indices into chunks_ of each server's chunks, indexed by server.
  std::vector<std::vector<int>> AddChunks();
  VariablesByMemory AddVariables();
  // Sets the fields `buffer`, `before` and `same` of the variables.
  void MarkBuffers(const Replica& replica, const VariablesByMemory& by_memory);
  // Sets variable_of_ and parameters_of_.
  void FindParameters(const Replica& replica, const VariablesByMemory& by_memory);
  // Adds a part to its variable, and the variable to the chunks that overlap the part. `of_server`
  // has the indices of the chunks on the part's server.
  void AddPart(const push_pull::VariablePart& part, const std::vector<int>& of_server);
  // Returns true if the optimizer clips gradients.
  bool clips(int optimizer) const;
  // Copies `gradient` to the client's memory. If `add` is true, adds it to the values there.
  void Write(int variable, const at::Tensor& gradient, bool add);
  // Sets the client's memory for the gradient to 0.
  void Clear(int variable);
  // Returns a ProgramError if a kSame buffer differs from its value at the last pull.
  absl::Status CheckSameBuffers() const;
  using What = push_pull::PushPullClient::What;
  // Sends a request for one chunk. `what` says whether the request has a gradient, a difference or
  // nothing. The answer has the new values of the chunk in all three cases.
  void Launch(int chunk, What what = What::kGradient);
  // Pushes the changed buffers. Pulls all chunks that this step has not pushed.
  void LaunchRest();
  // Writes the value before the step minus the current value to the client's memory. The servers
  // subtract this difference. Returns false if the buffer is unchanged or the weight of BeginStep
  // is 0.
  bool WriteDifference(Variable& variable);
  // Begins a push, if none is open.
  void Open();
  // Blocks until the open push is complete. Copies the received values to the device.
  absl::Status Wait();
  // Returns the result of `call`, and calls on_wait_ before and after it.
  template <typename Call>
  auto Waiting(const Call& call) const {
    if (on_wait_) on_wait_(true);
    auto result = call();
    if (on_wait_) on_wait_(false);
    return result;
  }
  // Adds the variables of refused chunks, given as (server, index), to not_finite_.
  void NoteRefused(const std::set<std::pair<int, int>>& chunks);
  // Copies received values to the device. On a CPU replica, tells autograd that the tensors have
  // changed. Includes the variables without an optimizer if `rest` is true.
  void CopyToDevice(bool rest);

  const push_pull::Layout layout_;
  const ServedVariables served_;
  RowExchange rows_;
  std::vector<Variable> variables_;
  std::vector<ChunkPlace> chunks_;
  // Indexed by the program's optimizer: the indices of its chunks.
  std::vector<std::vector<int>> chunks_of_;
  std::vector<int> rest_;  // The indices of the chunks without an optimizer.
  std::vector<std::vector<at::Tensor>> parameters_of_;  // Indexed by optimizer.
  // Indexed by optimizer, then by parameter: the index into variables_. -1 if the parameter has no
  // elements.
  std::vector<std::vector<int>> variable_of_;
  std::vector<ClipOptions> clips_;  // Indexed by optimizer.
  // True in a float16 run. Gradients may then be infinite. All gradients are therefore collected
  // and checked before the first is sent.
  bool whole_ = false;
  push_pull::PushPullClient* client_ = nullptr;
  std::function<void(bool)> on_wait_;
  double weight_ = 1;                   // Argument of BeginStep.
  int64_t lease_ = 0;                   // Argument of BeginStep.
  std::vector<double> learning_rates_;  // Indexed by the servers' optimizer.
  bool open_ = false;                   // True between the first Launch of a push and Wait.
  bool rest_done_ = false;              // True if this step has pushed the changed buffers.
  absl::Status refused_;                // The error if this step changed a kSame buffer.
  uint64_t sequence_ = 0;
  int64_t pushes_ = 0;  // Pushes of this step.
  MonotonicTime push_began_;
  push_pull::PushPullClient::Outcome outcome_;
  std::set<std::string> not_finite_;
};

// Returns the error for a program that changed the buffer `name`, which is declared kSame.
absl::Status ChangedSameBuffer(const std::string& name);

}  // namespace muster
