// The shards of one ps process under the current view. The process serves workers for the shards of
// which it is the primary. It serves the primary for the shards of which it is the backup.
//
// A view lasts until the next call of SetView, which ends the view's data connections, their
// threads and all pending requests. After SetView, no request of an old view accesses a shard.
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
    std::string backup_address;     // The address of the backup's data listener.
    bool backup_in_sync = false;
    friend bool operator==(const Place&, const Place&) = default;
  };
  uint64_t number = 0;
  std::string ticket;
  std::vector<Place> shards;
  friend bool operator==(const PsView&, const PsView&) = default;
};

// Describes the shards of a run: layout, optimizer rules and tables.
struct ShardSpec {
  push_pull::Layout layout;
  std::vector<RuleSpec> rules;                                    // Indexed by optimizer.
  std::map<int, push_pull::EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
  std::map<int, std::string> table_names = {};                    // Indexed by Chunk::table.
  uint64_t digest = 0;  // The digest of variables and layout.
  bool checksum = false;
  push_pull::Compression compression =
      push_pull::Compression::kNone;  // Compression of data sent to a backup.
};

// The frozen content of one shard.
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
  // Called for each message of the chief.
  virtual void OnChiefContact() = 0;

  virtual const ShardSpec& spec() const = 0;
  // Ends the current view, blocks until nothing of it is left, and begins `view`. Returns
  // FailedPrecondition if `view` is older than the current one.
  virtual absl::Status SetView(const PsView& view) = 0;
  // Sets the incarnation of every worker, by index. Workers without an incarnation are lost.
  // Ignores the call if `version` is below that of an earlier call.
  using WorkersVersion = std::pair<uint32_t, uint64_t>;  // The chief's term, and its counter.
  virtual void SetWorkers(WorkersVersion version, const std::map<int, uint64_t>& incarnations) = 0;
  virtual absl::Status Restore(int shard, int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns the current rows of a table, in the order of `keys`. `variable` is the table's index
  // among the variables. All keys must belong to one shard. Returns Unavailable if this process is
  // not the shard's primary.
  virtual absl::StatusOr<std::vector<float>> PullRows(int variable,
                                                      std::span<const uint64_t> keys) const = 0;
  // Freezes the content of the shards of which this process is the primary. Returns Unavailable if
  // a shard is incomplete.
  virtual absl::StatusOr<std::map<int, ShardCut>> CutPrimaries() const = 0;

  virtual uint64_t view() const = 0;
  // Returns the highest lease of which at least a part of the push has arrived here, 0 if there is
  // none.
  virtual int64_t newest_lease() const = 0;
  // Returns the shards that this process holds completely: as their primary, as a backup in sync,
  // or while they have no primary.
  virtual std::vector<int> serving() const = 0;
  // Returns the shards that have this process as primary and a backup in sync. If a backup is not
  // in sync, sets `*last_error` to the reason.
  virtual std::vector<int> synced(std::string* last_error) const = 0;
  // Returns how long a push has waited for the backup (ReplicatedStore::waiting). Keyed by shard,
  // without the shards for which it is zero.
  virtual std::map<int, Duration> waiting() const = 0;
  // Returns the statistics of each table (Chunk::table), summed over the shards of which this
  // process is the primary.
  virtual std::map<int, push_pull::TableStatistics> tables() const = 0;
  virtual PsStatus status() const = 0;
  virtual void Stop() = 0;
};

}  // namespace muster::ps
