// The shards of one ps process. A shard is the part of the variables that one server holds. A shard
// consists of chunks (common/push_pull/layout.h).
//
// A view is the chief's assignment of each shard to a primary ps task and optionally a backup.
// Workers use the primary, and the primary forwards each update to the backup. A view lasts until
// the next call of SetView. SetView ends the data connections of the old view, their threads and
// all pending requests. After SetView, no request of an old view accesses a shard.
//
// Thread-safe. Needs neither LibTorch nor gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/optim/optimizer_spec.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/options.h"
#include "muster/status.h"
#include "ps/rows_file.h"
#include "ps/service.h"
#include "ps/shard_store.h"

namespace muster::ps {

struct PsView {
  struct Place {
    int primary = -1, backup = -1;  // Indices of ps tasks.
    std::string backup_address;     // The address of the backup's DataListener.
    bool backup_in_sync = false;    // True if the backup has every acknowledged update.
    friend bool operator==(const Place&, const Place&) = default;
  };
  uint64_t number = 0;        // Higher than the numbers of all earlier views.
  std::string ticket;         // The secret that data connections of this view must present.
  std::vector<Place> shards;  // Indexed by shard.
  friend bool operator==(const PsView&, const PsView&) = default;
};

// Describes the shards of a run: layout, optimizer rules and tables.
struct ShardSpec {
  push_pull::Layout layout;
  std::vector<RuleSpec> rules;                                    // Indexed by optimizer.
  std::map<int, push_pull::EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
  std::map<int, std::string> table_names = {};                    // Indexed by Chunk::table.
  uint64_t digest = 0;    // The digest of variables and layout.
  bool checksum = false;  // True if frames to a backup have checksums.
  push_pull::Compression compression =
      push_pull::Compression::kNone;  // Compression of the gradients sent to a backup.
};

// The content of one shard as it was at the time of a cut (ShardHost::CutPrimaries).
struct ShardCut {
  std::shared_ptr<const ShardStore> store;
  // Indexed by chunk. Null for chunks of tables.
  std::vector<std::shared_ptr<ShardStore::FrozenChunk>> chunks;
  std::shared_ptr<const RowsFile> rows;  // Null if the shard has no tables.
};

class ShardHost {
 public:
  static std::unique_ptr<ShardHost> Make(ShardSpec spec, PsServiceOptions options);
  virtual ~ShardHost() = default;  // Calls Stop.
  // Called for each message of the chief. See ps/chief_contact.h.
  virtual void OnChiefContact() = 0;

  virtual const ShardSpec& spec() const = 0;
  // Ends the current view and begins `view`. Blocks until the connections and threads of the
  // current view have ended. Returns FailedPrecondition if `view` is older than the current view.
  virtual absl::Status SetView(const PsView& view) = 0;
  // Sets the incarnation of each worker, keyed by the index of the worker. An incarnation is a
  // random number that identifies a process. After the call, only these processes may push. Has no
  // effect if an earlier call had a higher `version`. `version` is a pair of two numbers: the
  // chief's term, and a counter of this chief. The term is above the terms of all earlier chiefs.
  using WorkersVersion = std::pair<uint32_t, uint64_t>;
  virtual void SetWorkers(WorkersVersion version, const std::map<int, uint64_t>& incarnations) = 0;
  // Sets the content of a chunk. Also changes the backup if this process is the shard's primary.
  virtual absl::Status Restore(int shard, int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns the current rows of an embedding table, in the order of `keys`. `variable` is the
  // table's index among the variables. All keys must belong to one shard. Returns Unavailable if
  // this process is not the primary of that shard.
  virtual absl::StatusOr<std::vector<float>> PullRows(int variable,
                                                      std::span<const uint64_t> keys) const = 0;
  // Returns the content of all shards whose primary is this process, keyed by shard. Later updates
  // do not change the result. Does not copy parameters or rows during the call. Returns Unavailable
  // if a chunk has no content yet.
  virtual absl::StatusOr<std::map<int, ShardCut>> CutPrimaries() const = 0;

  // Returns the number of the current view.
  virtual uint64_t view() const = 0;
  // A lease is the number that the chief gave to the batch of a push. Returns the highest lease for
  // which a push has arrived at this process, at least in part. Returns 0 if no push has arrived.
  virtual int64_t newest_lease() const = 0;
  // Returns the shards of this process whose chunks all have content. Omits a shard if this process
  // is the shard's backup and is not in sync (ReplicationOptions::in_sync).
  virtual std::vector<int> serving() const = 0;
  // Returns the shards whose primary is this process and whose backup is in sync. If a backup
  // cannot be brought in sync, sets `*last_error` to the reason.
  virtual std::vector<int> synced(std::string* last_error) const = 0;
  // Returns ReplicatedStore::waiting of each shard. Omits shards with the value zero.
  virtual std::map<int, Duration> waiting() const = 0;
  // Returns the statistics of each embedding table, keyed by Chunk::table and summed over all
  // shards whose primary is this process.
  virtual std::map<int, push_pull::TableStatistics> tables() const = 0;
  virtual PsStatus status() const = 0;
  virtual void Stop() = 0;
};

}  // namespace muster::ps
