// The shards that one ps process holds, as the view says: as primary it serves workers, as backup
// the primary. A view lives from SetView to the next one; with it go its data connections, their
// threads and whatever waits in them, so that nothing of an old view touches a shard once SetView
// has returned.
//
// All methods may be called from any thread. Needs neither LibTorch nor gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/push_pull/optimizer_spec.h"
#include "common/push_pull/options.h"
#include "muster/status.h"
#include "ps/dense_store.h"
#include "ps/rows_file.h"
#include "ps/service.h"

namespace muster::ps {

struct PsView {
  struct Place {
    int primary = -1, backup = -1;  // ps tasks
    std::string backup_address;     // of its data listener
    bool backup_in_sync = false;
    friend bool operator==(const Place&, const Place&) = default;
  };
  uint64_t number = 0;
  std::string ticket;
  std::vector<Place> shards;
  friend bool operator==(const PsView&, const PsView&) = default;
};

// How shards are cut, and the rules of the chunks.
struct ShardSpec {
  Layout layout;
  std::vector<RuleSpec> rules;                         // by optimizer
  std::map<int, EmbeddingTable::Options> tables = {};  // by Chunk::table
  std::map<int, std::string> table_names = {};         // likewise
  uint64_t digest = 0;                                 // DigestOf
  bool checksum = false;
  Compression compression = Compression::kNone;  // of what goes to a backup
};

// One shard as it was at one moment: frozen.
struct ShardCut {
  std::shared_ptr<const DenseStore> store;
  std::vector<std::shared_ptr<DenseStore::FrozenChunk>>
      chunks;  // by chunk; of those of tables null
  std::shared_ptr<const RowsFile> rows;
};

class ShardHost {
 public:
  static std::unique_ptr<ShardHost> Make(ShardSpec spec, PsServiceOptions options);
  virtual ~ShardHost() = default;  // Stop
  // The chief of this run has said something.
  virtual void HeardChief() = 0;

  virtual const ShardSpec& spec() const = 0;
  // Returns when the view before it is over. FailedPrecondition where it is older.
  virtual absl::Status SetView(const PsView& view) = 0;
  // By worker: all there are. A lower version (the chief's epoch, its count) than the last is
  // ignored.
  using WorkersVersion = std::pair<uint32_t, uint64_t>;
  virtual void SetWorkers(WorkersVersion version, const std::map<int, uint64_t>& incarnations) = 0;
  virtual absl::Status Restore(int shard, int chunk, ChunkState state, Piece piece = {}) = 0;
  // Rows of the table that is this variable, as they are now, in the order of the keys, which are
  // all of one shard. Unavailable where this is not its primary.
  virtual absl::StatusOr<std::vector<float>> PullRows(int variable,
                                                      std::span<const uint64_t> keys) const = 0;
  // The shards of which this is the primary, by shard. Unavailable where one of them is not whole.
  virtual absl::StatusOr<std::map<int, ShardCut>> CutPrimaries() const = 0;

  virtual uint64_t view() const = 0;
  // The highest one whose push has come here, in part at least; 0: none.
  virtual int64_t newest_lease() const = 0;
  // Shards that are whole here: of which this is primary or backup in sync; or nobody is primary.
  virtual std::vector<int> serving() const = 0;
  // Shards of which this is the primary and whose backup is up to date; `trouble`: why one is not.
  virtual std::vector<int> synced(std::string* trouble) const = 0;
  // By shard of which this is the primary: ReplicatedStore::waiting, where it is not zero.
  virtual std::map<int, Duration> waiting() const = 0;
  // By Chunk::table: of the shards of which this is the primary, together.
  virtual std::map<int, TableStatistics> tables() const = 0;
  virtual PsStatus status() const = 0;
  virtual void Stop() = 0;
};

}  // namespace muster::ps
