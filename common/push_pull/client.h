// The worker's side of push and pull with all shards of a view. A chunk is sent as soon as its
// gradients are complete, while the rest of the backward pass runs. The server replies with the
// chunk's parameters. After a broken connection, a lost server or a new view, unacknowledged chunks
// are sent again under the same sequence number and count once. If a shard is restored to an older
// state during a push, the client repeats all chunks of the push that the shard had received. A
// shard therefore has a push completely or not at all.
#pragma once

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
#include "common/transport/data_listener.h"
#include "muster/status.h"

namespace muster::ps {

// The addresses of the primaries, as a worker needs them: a part of proto::View.
struct ClientView {
  struct Primary {
    int task = -1;        // Index of the ps task. -1: no task serves the shard yet.
    std::string address;  // The address of its data listener.
    std::string host_id;  // If equal to the worker's own, they share memory.
    // The last view at which the shard was restored to an older state, which discards pushes
    // acknowledged in views up to this one. 0: never.
    uint64_t restored = 0;
  };
  uint64_t number = 0;  // Generation of the connections.
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
  // Blocks until a view above `newer_than` exists in which every shard has a primary. An error (the
  // job has ended, the chief did not come back) ends the transfer, unless the transfer has
  // recovered by then. Called on a thread of the client, also while a connection is stalled or is
  // being reopened in the current view. Abort does not interrupt a call, and the client's
  // destructor waits for it.
  std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
  // The destination of pulled parameters: for each shard, spans that cover the shard's memory in
  // order. They must outlive the client. Only the client may use them during a transfer.
  std::vector<std::vector<std::span<float>>> parameters;
};

class PushPullClient {
 public:
  // Connects at the first transfer.
  static absl::StatusOr<std::unique_ptr<PushPullClient>> Make(ClientOptions options);
  virtual ~PushPullClient() = default;  // Aborts transfers in progress.

  // The shard's gradients, layout.elements[shard] of them, in memory that avoids copies. The
  // address stays the same for the client's life, in all views. Launched chunks must not be
  // modified until Finish.
  virtual std::span<float> gradients(int shard) = 0;

  // A push is Begin, any number of Launch calls, then Finish. One push at a time. `sequence` starts
  // at 1 and increases by one. `lease` is the lease of the batch. Learning rates are indexed by
  // optimizer.
  virtual void Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) = 0;
  enum class What {
    kGradient,
    kDifference,  // The change of values that are not negative: see ChunkPush::floor.
    kNothing,     // No gradient: the chunk is only pulled, if it has changed.
  };
  // Sends and pulls a chunk whose content for this push is complete. Thread-safe. Never blocks. A
  // chunk may be launched at most once per push.
  virtual void Launch(int shard, int chunk, What what) = 0;
  void Launch(int shard, int chunk) { Launch(shard, chunk, What::kGradient); }
  struct Outcome {
    int64_t staleness_max = 0;  // Over the chunks.
    double staleness_mean = 0;
    int64_t bytes = 0;  // Pushed and pulled.
    int resumed = 0;    // Views and connections beyond the first one.
    // By shard: the oldest view in which a chunk of the push was acknowledged. 0: none was.
    std::vector<uint64_t> views;
    // Chunks (shard, chunk) that their server refused because the push contains a value that is not
    // finite.
    std::set<std::pair<int, int>> refused;
  };
  // Blocks until everything launched is acknowledged and the parameters are in place.
  virtual absl::StatusOr<Outcome> Finish() = 0;
  // Pulls all chunks, except rows of tables. Must not be called during a push.
  virtual absl::Status Pull() = 0;

  // ---- Rows of embedding tables: chunks with rows(), which Pull does not pull. The pushes of one
  // call to the same server travel in one frame, unless they are large. Same rules as Launch.
  // Packed data must not be modified until Finish.
  virtual void LaunchRows(std::span<const RowPush> pushes) = 0;
  // Starts pulls without waiting for them. Thread-safe, also during a push. Never blocks. The
  // result includes every push of the chunk that was launched before. The client holds each fetch
  // until it is completely answered or the client is destroyed.
  virtual void FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) = 0;
  // Blocks until the fetch is complete. Thread-safe.
  virtual absl::Status Await(const RowFetch& fetch) = 0;

  // Ends all transfers with `why`, permanently. Thread-safe.
  virtual void Abort(absl::Status why) = 0;
};

}  // namespace muster::ps
