// A shard on two ps tasks ("parameter_server.copies": 2). The primary applies an update, forwards
// it, and acknowledges it when the backup has it: what a worker was told is in both.
//
// Chunk by chunk the primary hands its state over, unless the backup has it already; from then on
// each update of the chunk is forwarded with its number in the chunk's order. Chunks are spread
// over a few connections, and what is sent of a chunk goes over one of them, so that it arrives in
// its order. Updates leave without waiting for answers to those before. When a connection fails,
// the backup tells the next one what it holds, and what is missing there is handed over again.
//
// With `compression` gradients go to the backup in 16 bits: what has come in 32 is rounded before
// it is applied, on both sides.
//
// Both sides belong to one view and end with it. docs/parameter_server.md, "Views and backups".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/push_pull/options.h"
#include "common/transport/data_listener.h"
#include "ps/dense_store.h"

namespace muster::ps {

struct ReplicationOptions {
  int shard = 0;
  uint64_t layout = 0;  // digest
  int chunks = 0;
  bool checksum = false;
  Compression compression = Compression::kNone;
  // The view says that the backup has all that was acknowledged. Then nothing is acknowledged
  // without it; else not before it has caught up, which it has as soon as `synced`.
  bool in_sync = false;
  // Of a connection on which something is to come. It may be silent as long as nothing is.
  Duration stall = std::chrono::seconds(30);
  // How long an update waits until it can leave to a backup that does not count yet.
  Duration hold = std::chrono::seconds(1);
  Duration new_view = std::chrono::minutes(2);    // what is not acknowledged waits so long
  const transport::AbortSignal* abort = nullptr;  // set when the view is over, before Close

  // Of the primary.
  transport::DataListener* listener = nullptr;
  int task = 0, backup = 0;
  uint64_t view = 0;
  std::string ticket, address;  // of the backup
};

// The primary's side: what its workers are served from. Fill and Restore set the backup back too:
// where it counts they return when it has the state, or Unavailable after `new_view`.
class ReplicatedStore : public DenseStore {
 public:
  static std::shared_ptr<ReplicatedStore> Make(std::shared_ptr<DenseStore> local,
                                               ReplicationOptions options);
  // The backup has all that was acknowledged, and will.
  virtual bool synced() const = 0;
  // Why not, if something is wrong; else "".
  virtual std::string trouble() const = 0;
  // For how long a push has waited for a backup that counts, beside the time that its bytes need;
  // zero: none waits. The chief decides when that is too long.
  virtual Duration waiting() const = 0;
  // Ends every wait, for good.
  virtual void Close() = 0;
};

// The backup's side.
class BackupShard {
 public:
  static std::shared_ptr<BackupShard> Make(std::shared_ptr<DenseStore> store,
                                           ReplicationOptions options);
  virtual ~BackupShard() = default;
  // Serves one connection of the primary until it is closed (OK), something is wrong (the primary
  // is told, where it can be) or the view is over. Blocks: for a thread of its own.
  virtual absl::Status Serve(transport::DataConnection& connection) = 0;
  // The view or the primary has said so.
  virtual bool in_sync() const = 0;
  virtual void Close() = 0;
};

}  // namespace muster::ps
