// The parameter server's gRPC service for the chief (proto/parameter_server.proto). It also serves
// workers the shards that the current view assigns to this task, as primary or as backup. Each view
// accepts its own data connections. Each connection has a thread. Needs no LibTorch. See
// docs/parameter_server.md.
//
// Thread-safe. The service must outlive the gRPC server that it is registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/bulk_calls.h"
#include "common/transport/data_listener.h"

namespace muster {

// Returns how long pushes may continue without a message from the chief. This is shorter than the
// time after which the chief removes this task: after `heartbeat` without a message, or `resume`
// after the session broke. The kernel may report the break only after rpc::kKeepaliveTimeout.
Duration LongestChiefSilence(Duration heartbeat, Duration resume);

struct PsServiceOptions {
  int task = 0;                                 // This task's index among the ps tasks.
  transport::DataListener* listener = nullptr;  // Must outlive the service.
  Duration idle = std::chrono::minutes(10);  // Limit between two requests on a worker's connection.
  Duration stall = std::chrono::seconds(30);  // Limit within one request on any connection.
  // Limit for which a push that the backup does not acknowledge waits for a new view.
  Duration new_view = std::chrono::minutes(2);
  // Pushes wait once the chief has been silent for this long (see LongestChiefSilence). Zero:
  // pushes never wait for the chief.
  Duration chief_silence = Duration::zero();
  rpc::BulkCalls::Limits bulk;  // Limits of the chief's calls that carry state.
};

// Shown in the log and in status lines.
struct PsStatus {
  uint64_t view = 0;
  std::vector<int> primary_of, backup_of;  // Shards.
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
  // Closes all data connections and cancels the chief's streams. Blocks until they have ended.
  // Calls of the chief return UNAVAILABLE from then on. A stopped service cannot be restarted.
  virtual void Stop() = 0;
};

}  // namespace muster
