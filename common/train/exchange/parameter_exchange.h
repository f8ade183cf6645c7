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
// fast as with one worker. Buffers declared kSame are not pushed. If a program changes such a
// buffer, the step fails.
//
// DenseVariables has the parameters and buffers. RowExchange exchanges the rows of embedding
// tables.
//
// Used by the replica's thread, with two exceptions. The thread that loads batches calls Prefetch.
// Autograd may deliver gradients in a thread of its own.
#pragma once

#include <functional>
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
#include "common/train/exchange/dense_variables.h"
#include "common/train/exchange/row_exchange.h"
#include "common/train/replica/gradients/gradient_sink.h"
#include "common/train/replica/replica.h"
#include "common/train/state/variables.h"

namespace muster {

class ParameterExchange : public EmbeddingStore {
 public:
  // `served` has the variables (VariablesToServe). `layout` assigns parts of variables to servers.
  static absl::StatusOr<std::unique_ptr<ParameterExchange>> Make(const Replica& replica,
                                                                 const Job& job,
                                                                 ServedVariables served,
                                                                 push_pull::Layout layout);

  const std::vector<push_pull::VariableSpec>& variables() const { return served_.specs; }
  const push_pull::Layout& layout() const { return layout_; }
  // Returns the host memory that receives pulled variables, for ClientOptions::parameters. On a CPU
  // replica, this is the memory of the replica's own tensors.
  std::vector<std::vector<std::span<float>>> parameters() const { return dense_.HostMemory(); }
  // Sets the client, which must stay valid until the next call of UseClient. `client` may
  // be null. Rows that an earlier client has prefetched become invalid. Called between
  // steps.
  void UseClient(push_pull::PushPullClient* client);
  // Sets a function that is called with `true` before each wait for servers, and with `false` after
  // the wait.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // Returns one gradient sink for each optimizer, as the argument of Replica::Attach. This object
  // must outlive the sinks.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks();

  // Receives the newest values of all variables except embedding tables. Blocks. Returns a
  // ProgramError if the program has changed a kSame buffer.
  absl::Status Pull();

  // Thread-safe. Calls the program's prefetch() with `batch`, and starts to pull the rows of the
  // keys that prefetch() names. Does not wait for the rows. Returns null if the program names no
  // key or there is no client. Returns an error if prefetch() fails.
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
  // Returns the time at which the newest step with a push began its first push. This may be the
  // current step or an earlier step. All current parameters of this replica were received after
  // this time.
  MonotonicTime push_began() const { return push_began_; }
  // Returns the combined outcome of all pushes since BeginStep, such as their staleness.
  const push_pull::PushPullClient::Outcome& outcome() const { return outcome_; }
  // Returns the names of the variables that servers have refused to update since BeginStep. A
  // server refuses gradients and buffer changes that are not finite.
  const std::set<std::string>& not_finite() const { return not_finite_; }

  // ---- Called by the sinks of MakeSinks

  // Sets the learning rate of the program's optimizer number `optimizer` for the next push.
  void SetLearningRate(int optimizer, double rate);
  // Begins a push if no push is open. Sends a request for one chunk in the open push.
  void Launch(int chunk, DenseVariables::What what = DenseVariables::What::kGradient);
  // Pushes the changed buffers. Pulls the unchanged buffers, and the chunks of optimizers that this
  // step has not pushed.
  void LaunchRest();
  // Blocks until the open push is complete. Copies the received values to the device.
  absl::Status Wait();
  // Returns true between the first Launch of a push and Wait.
  bool open() const { return open_; }

 private:
  ParameterExchange(const Replica& replica, ServedVariables served, push_pull::Layout layout)
      : served_(std::move(served)),
        layout_(std::move(layout)),
        dense_(replica, served_, layout_),
        rows_(served_, layout_),
        learning_rates_(served_.optimizers.size(), 1.0) {}
  // Begins a push if no push is open.
  void Open();
  // Returns the result of `call`, and calls on_wait_ before and after it.
  template <typename Call>
  auto Waiting(const Call& call) const {
    if (on_wait_) on_wait_(true);
    auto result = call();
    if (on_wait_) on_wait_(false);
    return result;
  }

  const ServedVariables served_;
  const push_pull::Layout layout_;
  DenseVariables dense_;
  RowExchange rows_;
  std::vector<ClipOptions> clips_;  // Indexed by optimizer.
  bool float16_ = false;            // True in a float16 run.
  push_pull::PushPullClient* client_ = nullptr;
  std::function<void(bool)> on_wait_;
  double weight_ = 1;                   // Argument of BeginStep.
  int64_t lease_ = 0;                   // Argument of BeginStep.
  std::vector<double> learning_rates_;  // Indexed by the servers' optimizer.
  bool open_ = false;
  bool rest_done_ = false;  // True if this step has pushed the changed buffers.
  absl::Status refused_;    // The error if this step changed a kSame buffer.
  uint64_t sequence_ = 0;
  int64_t pushes_ = 0;  // Number of pushes in this step.
  MonotonicTime push_began_;
  push_pull::PushPullClient::Outcome outcome_;
  std::set<std::string> not_finite_;
};

}  // namespace muster
