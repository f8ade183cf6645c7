// The chief's end of flight records (common/cluster/flight_record.h): takes them from the members
// and writes them to model_dir/flight/<generation>/<task>.json, on a thread of its own, so that a
// slow disk holds nobody up. Only the newest generations are kept. Needs no LibTorch.
//
// All methods may be called from any thread. The service must outlive the server it is registered
// with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/checkpoint/file_system.h"

namespace muster {

struct FlightServiceOptions {
  std::string model_dir;  // empty: nothing is kept, and members are told so
  std::string cluster_digest;
  std::function<std::string()> run_id;  // may change until training begins
  std::set<std::string> tasks;          // of the members, "worker:1"
  std::function<uint64_t()> newest;     // none above that generation has been formed
  std::function<absl::Status()> fence;  // asked before each write: still the owner? May be null
  checkpoint::FileSystem* files = nullptr;
  int keep_generations = 20;
  int keep_files = 2000;  // of all generations together, but the newest
};

class FlightService {
 public:
  static std::unique_ptr<FlightService> Make(FlightServiceOptions options);
  // What Drain has not waited for is dropped, but for the record that is being written. REQUIRES:
  // the server is gone.
  virtual ~FlightService() = default;
  virtual grpc::Service* service() = 0;
  // Until all that was taken so far is written, or for `limit`.
  virtual void Drain(Duration limit) = 0;
};

}  // namespace muster
