// A worker's client of the parameter servers. A shard is the part of all variables that one server
// holds. A chunk is a part of a shard. For each shard, a view names the primary: the ps task that
// serves the shard. When a ps task is lost or returns, the chief makes a new view with a higher
// number.
//
// The client sends the gradients of a chunk as soon as they are complete, while the rest of the
// backward pass runs. The server updates the chunk, and replies with the new parameters.
//
// After a broken connection or a new view, the client sends all unacknowledged chunks again, with
// the sequence number of their push. A server applies a push at most once to each chunk, even if
// the client sends the push again. If a shard is restored to an older state during a push, the
// client repeats all chunks that the shard had received in this push. A shard therefore contains
// either the whole push or nothing of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/options.h"
#include "common/push_pull/rows/row_pull.h"
#include "common/transport/counted_stream.h"
#include "common/transport/listener/data_listener.h"
#include "muster/status.h"

namespace muster::push_pull {

// The part of proto::View that a worker needs.
struct ClientView {
  struct Primary {
    int task = -1;        // The index of the ps task. -1: no task serves the shard yet.
    std::string address;  // The address of the ps task's data listener.
    // The host of the ps task. If it equals ClientOptions::host_id, the client offers shared memory
    // to the ps task.
    std::string host_id;
    // The number of a view, or 0 if the shard was never restored. After a restore to an older
    // state, pushes that the shard acknowledged in views up to this number may be missing.
    uint64_t restored = 0;
  };
  uint64_t number = 0;  // The number of the view.
  std::string ticket;   // A secret. Data connections of the view must send it.
  std::vector<Primary> shards;
};

struct ClientOptions {
  int worker = 0;            // The index of this worker.
  uint64_t incarnation = 0;  // A random number that identifies this process.
  Layout layout;
  std::string digest;  // The result of DigestOf.
  ParameterServerOptions options;
  transport::DataListener* listener = nullptr;  // Opens the connections. Must outlive the client.
  std::string host_id;                          // The value of rpc::ThisHost().id.
  // Returns a view whose number is above `newer_than`. Blocks until such a view exists and names a
  // primary for every shard. Returns an error if the job has ended or the chief is lost for good.
  // If the failed connections recover during the call, the client ignores the error. Otherwise the
  // error ends all transfers.
  //
  // Called on a thread of the client while a connection fails. During the call, the client keeps
  // trying to connect in the current view. Abort does not interrupt a call. The client's destructor
  // waits for the call.
  std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
  // The destination of pulled parameters. For each shard, the spans cover the shard's memory in
  // order. The memory must outlive the client. Only the client may use the memory during a
  // transfer.
  std::vector<std::vector<std::span<float>>> parameters;
  // For monitoring: the client sets this variable to the number of launched chunks without an
  // answer. The pulls of FetchRows do not count. May be null.
  std::shared_ptr<std::atomic<int64_t>> in_flight;
  // Counts the bytes that pass through memory shared with servers of this host. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

class PushPullClient {
 public:
  // Makes a client. The client connects when the first transfer needs a connection.
  static absl::StatusOr<std::unique_ptr<PushPullClient>> Make(ClientOptions options);
  virtual ~PushPullClient() = default;  // Aborts transfers in progress.

  // Returns the buffer of the shard's gradients, with layout.elements[shard] elements. The caller
  // writes gradients into the buffer, and the client sends them without a copy. The address of the
  // buffer never changes. The gradients of a launched chunk must not be modified until Finish
  // returns.
  virtual std::span<float> gradients(int shard) = 0;

  // Begins a push. A push consists of Begin, any number of Launch and LaunchRows calls, and Finish.
  // Pushes must not overlap. `sequence` is 1 for the first push, and increases by one. `lease` is
  // the chief's number for the assignment of the batch to this worker. `learning_rates` is indexed
  // by optimizer.
  virtual void Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) = 0;
  enum class What {
    kGradient,
    kDifference,  // A change of values that are never negative (ChunkPush::floor).
    kNothing,     // No gradient. Pulls the chunk if it has changed since the last pull.
  };
  // Starts to push and pull a chunk. The chunk's part of gradients(shard) must be complete. A chunk
  // may be launched at most once per push. Thread-safe. Never blocks.
  virtual void Launch(int shard, int chunk, What what) = 0;
  void Launch(int shard, int chunk) { Launch(shard, chunk, What::kGradient); }
  struct Outcome {
    // The maximum and the mean of Pushed::staleness over the chunks that the push changed.
    int64_t staleness_max = 0;
    double staleness_mean = 0;
    int64_t bytes = 0;  // The number of bytes pushed and pulled, without headers.
    int resumed = 0;    // The number of times that the client resent chunks.
    // Indexed by shard. An entry is the number of the oldest view in which the shard acknowledged a
    // chunk of the push. 0: the shard has no chunk of the push.
    std::vector<uint64_t> views;
    // The chunks (shard, chunk) whose gradients a server refused, because they contain an infinity
    // or a NaN.
    std::set<std::pair<int, int>> refused;
  };
  // Ends the push. Blocks until all launched chunks are acknowledged and their parameters have
  // arrived.
  virtual absl::StatusOr<Outcome> Finish() = 0;
  // Pulls all chunks except the chunks of embedding tables. Must not be called during a push.
  virtual absl::Status Pull() = 0;

  // ---- Rows of embedding tables. Their chunks have Chunk::rows() true.

  // Starts to push rows. The rules of Launch apply. The data of RowPush::packed must not be
  // modified until Finish returns. The client combines small pushes to the same server into one
  // message.
  virtual void LaunchRows(std::span<const RowPush> pushes) = 0;
  // Starts to pull rows. The pulled rows include the updates of all pushes that this client
  // launched to the same chunk before this call. The client keeps each fetch alive until all pulls
  // of the fetch are answered. May be called during a push. Thread-safe. Never blocks.
  virtual void FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) = 0;
  // Blocks until all pulls of the fetch are answered. Thread-safe.
  virtual absl::Status Await(const RowFetch& fetch) = 0;

  // Ends all transfers with the error `why`. New transfers then fail at once. Thread-safe.
  virtual void Abort(absl::Status why) = 0;
};

}  // namespace muster::push_pull
