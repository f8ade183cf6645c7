// The chief's side of flight records (common/flight/flight_record.h). It receives them from the
// members and writes them to model_dir/flight/<generation>/<task>.json. A thread of its own writes,
// so that a slow disk delays nobody. Only the newest generations are kept. Needs no LibTorch.
//
// Thread-safe. The service must outlive the server that it is registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/checkpoint/files/file_system.h"

namespace muster {

struct FlightServiceOptions {
  std::string model_dir;  // If empty, nothing is kept and members are informed of that.
  std::string cluster_digest;
  std::function<std::string()> run_id;  // May change until training begins.
  std::set<std::string> tasks;          // The members, "worker:1".
  std::function<uint64_t()> newest;     // Returns the newest generation that was formed.
  std::function<absl::Status()> fence;  // Called before each write to check ownership; may be null.
  checkpoint::FileSystem* files = nullptr;
  int keep_generations = 20;
  int keep_files = 2000;  // Limit for all generations together, except the newest.
};

class FlightService {
 public:
  static std::unique_ptr<FlightService> Make(FlightServiceOptions options);
  // Drops all records that Drain has not waited for, except the one being written. REQUIRES: the
  // server is gone.
  virtual ~FlightService() = default;
  virtual grpc::Service* service() = 0;
  // Blocks until all records received so far are written, or for `limit`.
  virtual void Drain(Duration limit) = 0;
};

}  // namespace muster
