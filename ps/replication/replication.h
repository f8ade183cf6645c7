// Replicates a shard on two ps tasks, the primary and the backup ("parameter_server.copies": 2). A
// shard is the part of the variables that one server holds. It consists of chunks (see
// ps/shard_store.h). Workers push gradients to the primary. The primary applies an update, forwards
// it to the backup, and acknowledges it to the worker when the backup has it. Both tasks then have
// every acknowledged update. A new backup must catch up first (ReplicationOptions::in_sync).
//
// For each chunk, the primary first sends the chunk's whole state, unless the backup has it
// already. This is the handover of the chunk. Then the primary forwards each update of the chunk
// with its number. Updates do not wait for the replies to earlier updates.
//
// The primary distributes the chunks over two connections. All frames of a chunk use the same
// connection, so they arrive in order. If a connection fails, the primary opens another one. On the
// new connection, the backup first reports how many updates each chunk has. The primary then hands
// over the chunks that are not up to date.
//
// With `compression`, the primary sends 16-bit gradients to the backup. The primary rounds 32-bit
// gradients of workers to 16 bits before it applies them, so that both tasks apply the same values.
//
// A view is the chief's assignment of shards to primaries and backups. Both sides belong to one
// view and end with the view. See docs/parameter_server.md, "Views and backups".
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
  uint64_t layout = 0;    // Digest of variables and layout.
  int chunks = 0;         // The number of chunks of the shard.
  bool checksum = false;  // True if frames have checksums.
  push_pull::Compression compression = push_pull::Compression::kNone;
  // True if, according to the view, the backup is in sync: it has every acknowledged update. The
  // primary then acknowledges an update only when the backup has it. If false, the primary
  // acknowledges updates without waiting for the backup until the backup has caught up and synced()
  // is true.
  bool in_sync = false;
  // Maximum time without data on a connection while one side expects data.
  Duration stall = std::chrono::seconds(30);
  // Maximum time for which an update waits to be sent to a backup that is not in sync, in addition
  // to the time that is needed to send the chunk's state.
  Duration hold = std::chrono::seconds(1);
  // Maximum time for which an update waits for the backup's acknowledgement.
  Duration new_view = std::chrono::minutes(2);
  // The owner sets `abort` when the view ends, and then calls Close.
  const transport::AbortSignal* abort = nullptr;

  // Only the primary uses the following fields.
  transport::DataListener* listener = nullptr;
  int task = 0, backup = 0;  // Indices of the ps tasks: this task and the backup.
  uint64_t view = 0;         // The number of the view.
  // The secret of the view (see common/transport/hello.h), and the address of the backup's
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
  // Returns true if the backup has every acknowledged update, and the primary has told it so
  // (ReplicaKind::kSynced). From then on, the primary acknowledges an update only when the backup
  // has it.
  virtual bool synced() const = 0;
  // Returns why the backup cannot be brought up to date. Returns "" if there is no problem.
  virtual std::string last_error() const = 0;
  // Returns for how long the oldest waiting push has waited for a backup in sync. The time that is
  // needed to send the push does not count. Returns zero if no push waits, or if the backup is not
  // in sync. The chief makes a new view if the time is too long.
  virtual Duration waiting() const = 0;
  // Ends the store. Calls that wait, and later pushes, return an error.
  virtual void Close() = 0;
};

// The backup's side.
class BackupShard {
 public:
  static std::shared_ptr<BackupShard> Make(std::shared_ptr<ShardStore> store,
                                           ReplicationOptions options);
  virtual ~BackupShard() = default;
  // Serves one connection of the primary. Blocks until the primary closes the connection, and then
  // returns OK. If a frame is invalid, returns an error, after an attempt to send the error to the
  // primary. Also returns an error when the view ends. Needs its own thread.
  virtual absl::Status Serve(transport::DataConnection& connection) = 0;
  // Returns true if this backup is in sync according to the view, or if the primary has told it so.
  virtual bool in_sync() const = 0;
  // Refuses further frames.
  virtual void Close() = 0;
};

}  // namespace muster::ps
