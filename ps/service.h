// The parameter server's gRPC service for the chief (proto/parameter_server.proto). The service
// also accepts the data connections of workers and of other servers. It serves the shards that the
// current view assigns to this task, as primary or as backup. Data connections end with their view.
// Each connection has a thread. Needs no LibTorch. See docs/parameter_server.md.
//
// Thread-safe. The service must outlive the gRPC server that registers it.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/bulk_calls.h"
#include "common/transport/counted_stream.h"
#include "common/transport/data_listener.h"

namespace muster {
class SpanRecorder;
}

namespace muster::ps {

// Returns the time for which this task may apply pushes without a message from the chief. It is
// shorter than the time after which the chief removes this task. The chief does so after
// `heartbeat` without a message, or after `resume` without a session. It may notice a broken
// session only after rpc::kKeepaliveTimeout.
Duration LongestChiefSilence(Duration heartbeat, Duration resume);

struct PsServiceOptions {
  int task = 0;                                 // This task's index among the ps tasks.
  transport::DataListener* listener = nullptr;  // Must outlive the service.
  Duration idle = std::chrono::minutes(10);  // Limit between two requests on a worker's connection.
  Duration stall = std::chrono::seconds(30);  // Limit within one request on any connection.
  // Limit for a push to wait for its backup, or for a new view after the backup was lost.
  Duration new_view = std::chrono::minutes(2);
  // Pushes wait after this silence of the chief (see LongestChiefSilence). Zero: pushes never wait
  // for the chief.
  Duration chief_silence = Duration::zero();
  rpc::BulkCalls::Limits bulk;          // Limits of the chief's calls that carry state.
  std::shared_ptr<SpanRecorder> spans;  // Of the threads that serve workers. May be null.
  // Counts the bytes that pass through memory shared with workers. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

// For the log and for status lines.
struct PsStatus {
  uint64_t view = 0;
  std::vector<int> primary_of, backup_of;  // Indices of shards.
  int64_t updates = 0;                     // As in proto::BeatReply.
  int connections = 0;
};

class PsService {
 public:
  static std::unique_ptr<PsService> Make(PsServiceOptions options);
  virtual ~PsService() = default;  // Calls Stop.

  // The implementation of proto::ParameterServer.
  virtual grpc::Service* service() = 0;
  virtual PsStatus status() const = 0;
  // Closes all data connections and cancels the chief's streams. Blocks until all have ended. Later
  // calls of the chief return UNAVAILABLE. A stopped service cannot be started again.
  virtual void Stop() = 0;
};

}  // namespace muster::ps
