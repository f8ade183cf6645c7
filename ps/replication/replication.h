// Replicates a shard on two ps tasks ("parameter_server.copies": 2), the primary and the backup.
// The primary applies an update, forwards it, and acknowledges it to the worker once the backup has
// it. Both tasks therefore have every acknowledged update.
//
// The primary first sends the state of each chunk that the backup does not have. From then on, it
// forwards each update of the chunk, numbered in the chunk's order. It distributes the chunks over
// a few connections. All frames of a chunk use one connection, so they arrive in order. The primary
// sends updates without waiting for earlier replies. If a connection fails, the primary opens
// another one, on which the backup first reports what it holds. The primary then sends the state of
// the missing chunks again.
//
// With `compression`, the primary sends 16-bit gradients to the backup. It rounds a gradient that
// arrived in 32 bits before it applies it, so that both tasks apply the same values.
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
  push_pull::Compression compression = push_pull::Compression::kNone;
  // The view says that the backup has every acknowledged update. The primary then acknowledges no
  // update before the backup has it. If this is false, the rule holds once the backup has caught up
  // and synced() is true.
  bool in_sync = false;
  // Limit of silence on a connection while data is expected. An idle connection may be silent.
  Duration stall = std::chrono::seconds(30);
  // The longest time for which an update waits until it is sent to a backup that is not in sync
  // yet.
  Duration hold = std::chrono::seconds(1);
  // The longest time for which an update waits for the backup's acknowledgement.
  Duration new_view = std::chrono::minutes(2);
  const transport::AbortSignal* abort = nullptr;  // Set when the view is over, before Close.

  // Only the primary uses the rest.
  transport::DataListener* listener = nullptr;
  int task = 0, backup = 0;
  uint64_t view = 0;
  std::string ticket, address;  // The view's ticket, and the backup's data listener.
};

// The primary's side: the store from which the primary serves workers. Fill and Restore also change
// the backup. If the backup is in sync, they block until it has the state, and return Unavailable
// after `new_view`.
class ReplicatedStore : public ShardStore {
 public:
  static std::shared_ptr<ReplicatedStore> Make(std::shared_ptr<ShardStore> local,
                                               ReplicationOptions options);
  // Returns whether the backup has every acknowledged update, and no update will be acknowledged
  // before the backup has it.
  virtual bool synced() const = 0;
  // Returns the current problem with the backup, "" if there is none.
  virtual std::string last_error() const = 0;
  // Returns how long a push has waited for a backup in sync, without the time to send its bytes.
  // Zero if no push waits. The chief decides when this is too long.
  virtual Duration waiting() const = 0;
  // Wakes all waiting calls. They and later calls return an error.
  virtual void Close() = 0;
};

// The backup's side.
class BackupShard {
 public:
  static std::shared_ptr<BackupShard> Make(std::shared_ptr<ShardStore> store,
                                           ReplicationOptions options);
  virtual ~BackupShard() = default;
  // Serves one connection of the primary. Blocks until the primary closes it, then returns OK.
  // Returns an error if a frame is wrong, and tells the primary if possible. Returns an error if
  // the view is over. Needs its own thread.
  virtual absl::Status Serve(transport::DataConnection& connection) = 0;
  // Returns whether the view or the primary has reported that this backup is in sync.
  virtual bool in_sync() const = 0;
  virtual void Close() = 0;
};

}  // namespace muster::ps
