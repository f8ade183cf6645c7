// A worker's client of the parameter servers. It pushes gradients to all shards and pulls their
// parameters. The client sends a chunk as soon as its gradients are complete, while the rest of the
// backward pass runs. The server replies with the chunk's parameters.
//
// After a broken connection, a lost server or a new view, the client sends unacknowledged chunks
// again with the same sequence number. A server applies each number once per chunk. If a shard is
// restored to an older state during a push, the client repeats all chunks of the push that the
// shard had received. A shard therefore contains either the whole push or nothing of it.
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
#include "common/transport/data_listener.h"
#include "muster/status.h"

namespace muster::push_pull {

// The part of proto::View that a worker needs: the addresses of the primaries.
struct ClientView {
  struct Primary {
    int task = -1;        // Index of the ps task. -1: no task serves the shard yet.
    std::string address;  // The address of the ps task's data listener.
    // If it equals the worker's host id, the worker and the server use shared memory.
    std::string host_id;
    // A restore to an older state has discarded the pushes that were acknowledged in views up to
    // this one. 0: the shard was never restored.
    uint64_t restored = 0;
  };
  uint64_t number = 0;  // Also the generation of the view's data connections.
  std::string ticket;
  std::vector<Primary> shards;
};

struct ClientOptions {
  int worker = 0;
  uint64_t incarnation = 0;  // The incarnation of this process.
  Layout layout;
  std::string digest;  // The result of DigestOf.
  ParameterServerOptions options;
  transport::DataListener* listener = nullptr;  // Opens the connections. Must outlive the client.
  std::string host_id;                          // The value of rpc::ThisHost().id.
  // Blocks until a view above `newer_than` exists in which every shard has a primary. Returns an
  // error if the job has ended or the chief did not come back. The error ends all transfers, unless
  // the failing connections have recovered during the call.
  //
  // Called on a thread of the client while a connection fails, even if it is being reopened in the
  // current view. Abort does not interrupt a call. The client's destructor waits for the call.
  std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
  // The destination of pulled parameters. For each shard, the spans cover the shard's memory in
  // order. The spans must outlive the client. Only the client may use them during a transfer.
  std::vector<std::vector<std::span<float>>> parameters;
  // Set to the number of launched chunks without an answer, for monitoring. Rows that are fetched
  // ahead are not counted. May be null.
  std::shared_ptr<std::atomic<int64_t>> in_flight;
  // Counts the bytes that pass through memory shared with servers of this host. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

class PushPullClient {
 public:
  // The client connects at the first transfer.
  static absl::StatusOr<std::unique_ptr<PushPullClient>> Make(ClientOptions options);
  virtual ~PushPullClient() = default;  // Aborts transfers in progress.

  // Returns the buffer of the shard's gradients, with layout.elements[shard] elements. The client
  // sends from it without a copy. The address is constant for the client's life. Launched chunks
  // must not be modified until Finish returns.
  virtual std::span<float> gradients(int shard) = 0;

  // Begins a push. A push consists of Begin, any number of Launch calls, and Finish. Pushes must
  // not overlap. `sequence` starts at 1 and increases by one. `lease` is the lease of the batch.
  // Learning rates are indexed by optimizer.
  virtual void Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) = 0;
  enum class What {
    kGradient,
    kDifference,  // A change of values that are never negative (ChunkPush::floor).
    kNothing,     // No gradient. The chunk is pulled if it has changed.
  };
  // Starts to push and pull a chunk. Its content for this push must be complete. Thread-safe. Never
  // blocks. A chunk may be launched at most once per push.
  virtual void Launch(int shard, int chunk, What what) = 0;
  void Launch(int shard, int chunk) { Launch(shard, chunk, What::kGradient); }
  struct Outcome {
    int64_t staleness_max = 0;  // The maximum over the chunks.
    double staleness_mean = 0;  // The mean over the chunks.
    int64_t bytes = 0;          // The bytes that were pushed and pulled.
    int resumed = 0;            // The number of chunks that were sent again.
    // Indexed by shard. An entry is the oldest view in which a chunk of the push was acknowledged,
    // 0 if there is none.
    std::vector<uint64_t> views;
    // The chunks (shard, chunk) that a server refused, because they contain an infinity or a NaN.
    std::set<std::pair<int, int>> refused;
  };
  // Ends the push. Blocks until all launched chunks are acknowledged and all parameters received.
  virtual absl::StatusOr<Outcome> Finish() = 0;
  // Pulls all chunks, except rows of tables. Must not be called during a push.
  virtual absl::Status Pull() = 0;

  // ---- Rows of embedding tables, which are in chunks with rows().
  //
  // Starts to push rows, with the same rules as Launch. The pushes of one call to the same server
  // share a frame, unless they are large. Packed data must not be modified until Finish returns.
  virtual void LaunchRows(std::span<const RowPush> pushes) = 0;
  // Starts pulls without waiting for them. Thread-safe, also during a push. Never blocks. The
  // pulled rows include every push of the chunk that was launched before the pull. The client holds
  // each fetch until all its pulls are answered or the client is destroyed.
  virtual void FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) = 0;
  // Blocks until the fetch is complete. Thread-safe.
  virtual absl::Status Await(const RowFetch& fetch) = 0;

  // Ends all transfers with `why`, permanently. Thread-safe.
  virtual void Abort(absl::Status why) = 0;
};

}  // namespace muster::push_pull
