// The shards of one ps process under a view. As primary it serves workers, as backup the primary. A
// view lasts from SetView until the next one. Its data connections, their threads and all pending
// requests end with it. Once SetView has returned, nothing of an old view accesses a shard.
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

// The partition into shards and the rules of the chunks.
struct ShardSpec {
  Layout layout;
  std::vector<RuleSpec> rules;                         // Indexed by optimizer.
  std::map<int, EmbeddingTable::Options> tables = {};  // Indexed by Chunk::table.
  std::map<int, std::string> table_names = {};         // Indexed by Chunk::table.
  uint64_t digest = 0;                                 // See DigestOf.
  bool checksum = false;
  Compression compression = Compression::kNone;  // Compression of data sent to a backup.
};

// One shard at one moment, frozen.
struct ShardCut {
  std::shared_ptr<const ShardStore> store;
  std::vector<std::shared_ptr<ShardStore::FrozenChunk>>
      chunks;  // By chunk; null for chunks of tables.
  std::shared_ptr<const RowsFile> rows;
};

class ShardHost {
 public:
  static std::unique_ptr<ShardHost> Make(ShardSpec spec, PsServiceOptions options);
  virtual ~ShardHost() = default;  // Calls Stop.
  // Called when the chief of this run has sent something.
  virtual void HeardChief() = 0;

  virtual const ShardSpec& spec() const = 0;
  // Blocks until the previous view is over. Returns FailedPrecondition if `view` is older than the
  // previous one.
  virtual absl::Status SetView(const PsView& view) = 0;
  // Sets all workers, by index. A version (the chief's term, its counter) below the last one is
  // ignored.
  using WorkersVersion = std::pair<uint32_t, uint64_t>;
  virtual void SetWorkers(WorkersVersion version, const std::map<int, uint64_t>& incarnations) = 0;
  virtual absl::Status Restore(int shard, int chunk, ChunkState state, Piece piece = {}) = 0;
  // Returns the current rows of the table of this variable, in the order of `keys`, which all
  // belong to one shard. Returns Unavailable if this process is not its primary.
  virtual absl::StatusOr<std::vector<float>> PullRows(int variable,
                                                      std::span<const uint64_t> keys) const = 0;
  // Cuts the shards of which this process is the primary. Returns Unavailable if one of them is
  // incomplete.
  virtual absl::StatusOr<std::map<int, ShardCut>> CutPrimaries() const = 0;

  virtual uint64_t view() const = 0;
  // Returns the highest lease of which a push has arrived, at least in part; 0 if none.
  virtual int64_t newest_lease() const = 0;
  // Returns the shards that are complete here: this process is their primary or a backup in sync,
  // or they have no primary.
  virtual std::vector<int> serving() const = 0;
  // Returns the shards of which this process is the primary and whose backup is up to date.
  // `trouble` receives why one is not.
  virtual std::vector<int> synced(std::string* trouble) const = 0;
  // Returns ReplicatedStore::waiting by shard, for shards of which this process is the primary, if
  // not zero.
  virtual std::map<int, Duration> waiting() const = 0;
  // Returns totals by Chunk::table of the shards of which this process is the primary.
  virtual std::map<int, TableStatistics> tables() const = 0;
  virtual PsStatus status() const = 0;
  virtual void Stop() = 0;
};

}  // namespace muster::ps
