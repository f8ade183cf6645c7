// A worker's side of push and pull with all shards of a view: chunks travel as soon as their
// gradients are complete, while the rest of the backward pass runs, and come back as parameters. A
// broken connection, a lost server, a new view: what is not acknowledged is sent again under the
// same sequence number, and counts once. Where a shard was set back before the push was whole, all
// that it got of the push is sent again: a shard has a push as a whole or not at all.
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
#include "common/push_pull/row_pull.h"
#include "common/transport/data_listener.h"
#include "muster/status.h"

namespace muster::ps {

// Where a worker finds the primaries; the part of proto::View that it needs.
struct ClientView {
  struct Primary {
    int task = -1;        // index of the ps task; -1: nobody serves the shard yet
    std::string address;  // of its data listener
    std::string host_id;  // equal to the worker's own: they share memory
    // What was acknowledged in views up to this one is gone: the shard was set back. 0: never.
    uint64_t restored = 0;
  };
  uint64_t number = 0;  // generation of the connections
  std::string ticket;
  std::vector<Primary> shards;
};

struct ClientOptions {
  int worker = 0;
  uint64_t incarnation = 0;  // of this process
  Layout layout;
  std::string digest;  // DigestOf
  ParameterServerOptions options;
  transport::DataListener* listener = nullptr;  // opens the connections; outlives the client
  std::string host_id;                          // rpc::ThisHost().id
  // Blocks for a view above `newer_than`, in which every shard has a primary. An error (the job has
  // ended, the chief did not come back) ends the transfer with it, unless the trouble is over by
  // then. Called on a thread of the client, also while a connection hangs or is being opened again
  // in the view there is. Abort does not end a call: the client's destructor waits for it.
  std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
  // Where pulled parameters go: by shard, spans that cover the shard's memory in its order. They
  // outlive the client, and belong to it while a transfer is under way.
  std::vector<std::vector<std::span<float>>> parameters;
};

class PushPullClient {
 public:
  // Connects with the first transfer.
  static absl::StatusOr<std::unique_ptr<PushPullClient>> Make(ClientOptions options);
  virtual ~PushPullClient() = default;  // Aborts what is under way.

  // The shard's gradients, layout.elements[shard] of them, in a memory that saves copies: the same
  // for the client's life, whatever becomes of views. Chunks that were launched must not be touched
  // until Finish.
  virtual std::span<float> gradients(int shard) = 0;

  // Launch, any number of times, then Finish. One push at a time. `sequence`: from 1, one higher
  // each time; `lease`: whose batch it is; learning rates are by optimizer.
  virtual void Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) = 0;
  enum class What {
    kGradient,
    kDifference,  // of numbers that are not negative: ChunkPush::floor
    kNothing,     // no gradient: the chunk is only pulled, where it has changed
  };
  // What this chunk has in the push is complete: it is sent, and pulled. Any thread; never blocks.
  // A chunk is launched at most once in a push.
  virtual void Launch(int shard, int chunk, What what) = 0;
  void Launch(int shard, int chunk) { Launch(shard, chunk, What::kGradient); }
  struct Outcome {
    int64_t staleness_max = 0;  // of the chunks
    double staleness_mean = 0;
    int64_t bytes = 0;  // pushed and pulled
    int resumed = 0;    // views and connections that it took beyond the first
    // By shard: the oldest view in which a chunk of the push was acknowledged; 0: it has none.
    std::vector<uint64_t> views;
    // Chunks (shard, chunk) whose server has refused the push, for not all of it is finite.
    std::set<std::pair<int, int>> refused;
  };
  // Waits until all that was launched is acknowledged, and in place.
  virtual absl::StatusOr<Outcome> Finish() = 0;
  // Pulls all chunks. Between pushes.
  virtual absl::Status Pull() = 0;

  // ---- Rows of embedding tables: chunks with rows(), which Pull leaves alone. What one call
  // brings for a server travels in one frame, unless it is large. As Launch. What is packed stays
  // untouched until Finish.
  virtual void LaunchRows(std::span<const RowPush> pushes) = 0;
  // Pulls that nobody waits for yet. Any thread, also during a push; never blocks. They contain
  // every push of a chunk that was launched before. The client keeps a fetch until all of it is
  // answered, or its own end.
  virtual void FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) = 0;
  // Blocks until it is in place. Any thread.
  virtual absl::Status Await(const RowFetch& fetch) = 0;

  // Any thread: everything ends with `why`, for good.
  virtual void Abort(absl::Status why) = 0;
};

}  // namespace muster::ps
