// FlightService receives the members' flight records (common/flight/flight_record.h) and writes
// them to model_dir/flight/<generation>/<task>.json. It writes on its own thread, so a slow disk
// delays no caller. It keeps only the newest generations. It needs no LibTorch.
//
// Thread-safe. The FlightService must outlive the server that it is registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::chief {

struct FlightServiceOptions {
  std::string model_dir;  // If empty, the service keeps nothing and replies so to members.
  std::string cluster_digest;
  std::function<std::string()> run_id;  // The result may change until training begins.
  std::set<std::string> tasks;          // Names of the members, such as "worker:1".
  std::function<uint64_t()> newest;     // Returns the newest generation that was formed.
  // Checks before each write that this chief still owns the model_dir. May be null.
  std::function<absl::Status()> fence;
  checkpoint::FileSystem* files = nullptr;
  int keep_generations = 20;
  int keep_files = 2000;  // Limit for the files of all generations except the newest.
};

class FlightService {
 public:
  static std::unique_ptr<FlightService> Make(FlightServiceOptions options);
  // Drops all unwritten records, except the one being written. Call Drain first to keep them.
  // REQUIRES: the server is gone.
  virtual ~FlightService() = default;
  virtual grpc::Service* service() = 0;
  // Blocks until all records received so far are written, or for `limit`.
  virtual void Drain(Duration limit) = 0;
};

}  // namespace muster::chief
