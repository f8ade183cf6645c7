// A parameter server's service to the chief (proto/parameter_server.proto), and what it serves to
// workers: the shards that the view puts here, as primary or as backup. Each view admits its own
// data connections; each connection has a thread. Needs no LibTorch. docs/parameter_server.md.
//
// All methods may be called from any thread. The service must outlive the gRPC server that it is
// registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/bulk_calls.h"
#include "common/transport/data_listener.h"

namespace muster {

// How long pushes go on without a word from the chief: less than it takes the chief to give up a
// member that it hears nothing from, or one whose session breaks, as the kernel may say after
// rpc::kKeepaliveTimeout, and does not come back in `resume`.
Duration LongestChiefSilence(Duration heartbeat, Duration resume);

struct PsServiceOptions {
  int task = 0;                                 // own index among the ps tasks
  transport::DataListener* listener = nullptr;  // outlives the service
  Duration idle = std::chrono::minutes(10);     // of a worker's connection, between two requests
  Duration stall = std::chrono::seconds(30);    // of any connection, within one
  // A push that the backup does not acknowledge waits this long for a new view.
  Duration new_view = std::chrono::minutes(2);
  // Pushes wait while the chief has said nothing for so long (LongestChiefSilence); zero: they do
  // not.
  Duration chief_silence = Duration::zero();
  rpc::BulkCalls::Limits bulk;  // of the chief's calls that carry state
};

// For a log or a status line.
struct PsStatus {
  uint64_t view = 0;
  std::vector<int> primary_of, backup_of;  // shards
  int64_t updates = 0;                     // BeatReply's
  int connections = 0;
};

class PsService {
 public:
  static std::unique_ptr<PsService> Make(PsServiceOptions options);
  virtual ~PsService() = default;  // Stop

  // proto::ParameterServer.
  virtual grpc::Service* service() = 0;
  virtual PsStatus status() const = 0;
  // Closes all data connections and cancels the chief's streams, for good, and returns when they
  // have ended. Calls of the chief are answered UNAVAILABLE from then on.
  virtual void Stop() = 0;
};

}  // namespace muster
