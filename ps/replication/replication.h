// A shard on two ps tasks ("parameter_server.copies": 2). The primary applies an update, forwards
// it, and acknowledges it once the backup has it. An acknowledged update is thus on both.
//
// The primary hands its state over chunk by chunk, unless the backup already has it. From then on,
// each update of the chunk is forwarded with its number in the chunk's order. Chunks are spread
// over a few connections. All frames of a chunk use one connection, so they arrive in order.
// Updates are sent without waiting for earlier replies. When a connection fails, the backup reports
// on the next one what it holds, and missing chunks are handed over again.
//
// With `compression`, gradients go to the backup in 16 bits. A gradient that arrived in 32 bits is
// rounded before it is applied, on both sides.
//
// Both sides belong to one view and end with it. See docs/parameter_server.md, "Views and backups".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/push_pull/options.h"
#include "common/transport/data_listener.h"
#include "ps/shard_store.h"

namespace muster::ps {

struct ReplicationOptions {
  int shard = 0;
  uint64_t layout = 0;  // Digest of the layout.
  int chunks = 0;
  bool checksum = false;
  Compression compression = Compression::kNone;
  // True if the view says that the backup has everything acknowledged. Then nothing is acknowledged
  // without it. If false, this holds only once the backup has caught up, which is when `synced`
  // becomes true.
  bool in_sync = false;
  // Limit of silence on a connection while data is expected. An idle connection may be silent.
  Duration stall = std::chrono::seconds(30);
  // Limit for an update that waits to be sent to a backup which is not in sync yet.
  Duration hold = std::chrono::seconds(1);
  // Limit for an update that waits for its acknowledgement.
  Duration new_view = std::chrono::minutes(2);
  const transport::AbortSignal* abort = nullptr;  // Set when the view is over, before Close.

  // Only for the primary.
  transport::DataListener* listener = nullptr;
  int task = 0, backup = 0;
  uint64_t view = 0;
  std::string ticket, address;  // The view's ticket, and the backup's data listener.
};

// The primary's side, which serves the workers. Fill and Restore reset the backup, too. If the
// backup is in sync, they return when it has the state, or Unavailable after `new_view`.
class ReplicatedStore : public ShardStore {
 public:
  static std::shared_ptr<ReplicatedStore> Make(std::shared_ptr<ShardStore> local,
                                               ReplicationOptions options);
  // Returns whether the backup has, and will have, everything acknowledged.
  virtual bool synced() const = 0;
  // Returns the current problem with the backup, "" if there is none.
  virtual std::string trouble() const = 0;
  // Returns how long a push has waited for a backup that is in sync, beyond the time to send its
  // bytes. Zero if none waits. The chief decides when this is too long.
  virtual Duration waiting() const = 0;
  // Ends every wait permanently.
  virtual void Close() = 0;
};

// The backup's side.
class BackupShard {
 public:
  static std::shared_ptr<BackupShard> Make(std::shared_ptr<ShardStore> store,
                                           ReplicationOptions options);
  virtual ~BackupShard() = default;
  // Serves one connection of the primary. Returns OK when it is closed. Returns an error if
  // something is wrong, which the primary is informed of if possible, or if the view is over.
  // Blocks, so it needs its own thread.
  virtual absl::Status Serve(transport::DataConnection& connection) = 0;
  // Returns whether the view or the primary has reported that this backup is in sync.
  virtual bool in_sync() const = 0;
  virtual void Close() = 0;
};

}  // namespace muster::ps
