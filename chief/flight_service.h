// FlightService receives the flight records of the members (the tasks that train). A flight record
// is a task's log of events for post-mortems (common/flight/flight_record.h). FlightService writes
// each record to model_dir/flight/<generation>/<task>.json. A generation is the period in which a
// fixed set of members trains together. FlightService writes on its own thread, so a slow disk
// delays no caller. It keeps the files of the newest generations only. FlightService needs no
// LibTorch.
//
// Thread-safe. A FlightService must outlive the gRPC server on which it is registered.
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
  // If empty, the service stores nothing and says so in its replies to members.
  std::string model_dir;
  std::string cluster_digest;
  // Returns the id of the run. The id may change until training begins.
  std::function<std::string()> run_id;
  std::set<std::string> tasks;  // Names of the members, such as "worker:1".
  // Returns the number of the newest generation. Records with a higher number are refused.
  std::function<uint64_t()> newest;
  // Called before each write. Returns an error if this chief no longer owns the model_dir. May be
  // null.
  std::function<absl::Status()> fence;
  checkpoint::FileSystem* files = nullptr;
  int keep_generations = 20;  // Limit for the number of generations with files.
  // Limit for the number of files. The files of the newest generation always stay.
  int keep_files = 2000;
};

class FlightService {
 public:
  static std::unique_ptr<FlightService> Make(FlightServiceOptions options);
  // Waits for the write in progress and drops the other unwritten records. A caller that needs all
  // received records on the disk must call Drain first. REQUIRES: the gRPC server is destroyed.
  virtual ~FlightService() = default;
  virtual grpc::Service* service() = 0;
  // Blocks until all received records are written, but at most for `limit`.
  virtual void Drain(Duration limit) = 0;
};

}  // namespace muster::chief
