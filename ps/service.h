// The parameter server's gRPC service for the chief (proto/parameter_server.proto). The service
// also serves data connections, each with its own thread. On data connections, workers push
// gradients and pull parameters, and parameter servers forward updates to their backups.
//
// A shard is the part of the variables that one parameter server holds. A view is the chief's
// assignment of each shard to a primary server and optionally a backup. The service has the shards
// for which this task is the primary or the backup in the current view. The data connections of a
// view end when the chief sets the next view. Needs no LibTorch. See docs/parameter_server.md.
//
// Thread-safe. The service must outlive the gRPC server that registers it.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/server/bulk_calls.h"
#include "common/transport/counted_stream.h"
#include "common/transport/listener/data_listener.h"

namespace muster {
class SpanRecorder;
}

namespace muster::ps {

// Returns for how long this task may acknowledge pushes without a message from the chief. The
// result is shorter than the time after which the chief gives this task's shards to another task.
// That happens in two cases: the chief has received no message of this task for `heartbeat`, or the
// connection to this task has been broken for `resume`. The chief may notice a broken connection
// only after rpc::kKeepaliveTimeout.
Duration LongestChiefSilence(Duration heartbeat, Duration resume);

struct PsServiceOptions {
  int task = 0;                                 // This task's index among the ps tasks.
  transport::DataListener* listener = nullptr;  // Must outlive the service.
  // Maximum time between two requests on a worker's connection.
  Duration idle = std::chrono::minutes(10);
  // Maximum time without progress within one request, on any data connection.
  Duration stall = std::chrono::seconds(30);
  // Maximum time for which a push waits for the backup. If the backup is lost, the push waits for a
  // new view, in which the shard has another backup or no backup.
  Duration new_view = std::chrono::minutes(2);
  // If the chief has been silent for this time, pushes wait for the chief's next message (see
  // LongestChiefSilence). Zero: pushes do not wait for the chief.
  Duration chief_silence = Duration::zero();
  rpc::BulkCalls::Limits bulk;  // Limits of the chief's streams Fill, Read and ReadRows.
  // Records spans (common/flight/spans.h) of the threads that serve workers. May be null.
  std::shared_ptr<SpanRecorder> spans;
  // Counts the bytes that pass through memory shared with workers. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

// The state of the service, for log lines.
struct PsStatus {
  uint64_t view = 0;                       // The number of the current view.
  std::vector<int> primary_of, backup_of;  // Indices of shards.
  int64_t updates = 0;                     // The update count of the chunk with the most updates.
  int connections = 0;                     // The number of open data connections.
};

class PsService {
 public:
  static std::unique_ptr<PsService> Make(PsServiceOptions options);
  virtual ~PsService() = default;  // Calls Stop.

  // Returns the implementation of proto::ParameterServer. Owned by this object.
  virtual grpc::Service* service() = 0;
  virtual PsStatus status() const = 0;
  // Closes all data connections and cancels the chief's streams. Blocks until all connections and
  // streams have ended. Later calls of the chief return UNAVAILABLE. The service cannot restart.
  virtual void Stop() = 0;
};

}  // namespace muster::ps
