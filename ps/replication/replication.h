// Replicates a shard on two ps tasks, the primary and the backup ("parameter_server.copies": 2). A
// shard is the part of the variables that one server holds. A shard consists of chunks (see
// ps/shard_store.h). Workers push gradients to the primary. The primary applies each update and
// forwards the update to the backup. When the backup has the update, the primary acknowledges the
// push to the worker. Both tasks then have every acknowledged update. A new backup must catch up
// first (ReplicationOptions::in_sync).
//
// For each chunk, the primary first sends the chunk's whole state, unless the backup already has
// this state. This is the handover of the chunk. Then the primary forwards each update of the chunk
// with the update's number. Updates do not wait for the replies to earlier updates.
//
// The primary distributes the chunks over two connections. All frames of a chunk use the same
// connection, so they arrive in order. If a connection fails, the primary opens a new connection.
// On the new connection, the backup first reports how many updates each chunk has. The primary then
// hands over the chunks that are not up to date.
//
// With `compression`, the primary sends 16-bit gradients to the backup. The primary first rounds
// the 32-bit gradients of workers to 16 bits, and applies the rounded gradients. Both tasks
// therefore apply the same values.
//
// A view is the chief's assignment of shards to primaries and backups. A ReplicatedStore and a
// BackupShard end when their view ends. See docs/parameter_server.md, "Views and backups".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/push_pull/options.h"
#include "common/transport/listener/data_listener.h"
#include "ps/shard_store.h"

namespace muster::ps {

struct ReplicationOptions {
  int shard = 0;
  uint64_t layout = 0;    // Digest of variables and layout.
  int chunks = 0;         // The number of chunks of the shard.
  bool checksum = false;  // True if frames have checksums.
  push_pull::Compression compression = push_pull::Compression::kNone;
  // True if, according to the view, the backup has every acknowledged update. The primary then
  // acknowledges an update only when the backup has the update. If false, the primary at first
  // acknowledges updates without waiting for the backup. Once the backup has caught up, the primary
  // works as if `in_sync` were true (see synced()).
  bool in_sync = false;
  // Maximum time without data on a connection while one side expects data.
  Duration stall = std::chrono::seconds(30);
  // Maximum time for which a backup that is not in sync may delay an update. The time that is
  // needed to send the chunk's state or the update does not count.
  Duration hold = std::chrono::seconds(1);
  // Maximum time for which an update waits for the backup's acknowledgement.
  Duration new_view = std::chrono::minutes(2);
  // The owner sets `abort` when the view ends, and then calls Close.
  const transport::AbortSignal* abort = nullptr;

  // Only the primary uses the following fields.
  transport::DataListener* listener = nullptr;
  int task = 0, backup = 0;  // Indices of the ps tasks: this task and the backup.
  uint64_t view = 0;         // The number of the view.
  // The secret of the view (see common/transport/listener/hello.h), and the address of the backup's
  // DataListener.
  std::string ticket, address;
};

// The primary's side: the store from which the primary serves workers. Fill and Restore also change
// the chunk in the backup. If the backup is in sync, Fill and Restore block until the backup has
// the state. They return Unavailable after `new_view`.
class ReplicatedStore : public ShardStore {
 public:
  static std::shared_ptr<ReplicatedStore> Make(std::shared_ptr<ShardStore> local,
                                               ReplicationOptions options);
  // Returns true if the backup has every acknowledged update and knows this from the primary
  // (ReplicaKind::kSynced). From then on, the primary acknowledges an update only when the backup
  // has the update.
  virtual bool synced() const = 0;
  // Returns the reason why the backup cannot be brought up to date, or "" if there is no problem.
  virtual std::string last_error() const = 0;
  // Returns for how long the oldest waiting push has waited for the backup. The time that is needed
  // to send the push does not count. Returns zero if no push waits, or if the backup is not in
  // sync. The chief makes a new view if the time is too long.
  virtual Duration waiting() const = 0;
  // Ends the store. Waiting calls and later pushes return an error.
  virtual void Close() = 0;
};

// The backup's side.
class BackupShard {
 public:
  static std::shared_ptr<BackupShard> Make(std::shared_ptr<ShardStore> store,
                                           ReplicationOptions options);
  virtual ~BackupShard() = default;
  // Serves one connection of the primary. Blocks until the primary closes the connection, and then
  // returns OK. If a frame is invalid, tries to send an error to the primary, and returns the
  // error. Also returns an error when the view ends. Needs its own thread.
  virtual absl::Status Serve(transport::DataConnection& connection) = 0;
  // Returns true if this backup is in sync according to the view, or according to the primary
  // (ReplicaKind::kSynced).
  virtual bool in_sync() const = 0;
  // Refuses further frames.
  virtual void Close() = 0;
};

}  // namespace muster::ps
