// TraceService makes the traces that `muster trace` asks for. It tells the tasks to record, waits
// for their spans with a deadline, and writes one file to model_dir/trace/. A task that does not
// answer is named and left out. It needs no LibTorch.
//
// Thread-safe. The TraceService must outlive the server that it is registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::chief {

struct TraceServiceOptions {
  // If empty, traces are kept only in memory, for the caller.
  std::string model_dir;
  std::string cluster_digest;
  std::function<std::string()> run_id;
  std::vector<std::string> tasks;  // Names of the members, such as "worker:1", in order.
  bool independent = false;        // The job has parameter servers.
  // Checks before each write that this chief still owns the model_dir. May be null.
  std::function<absl::Status()> fence;
  checkpoint::FileSystem* files = nullptr;
  int keep = 20;  // Files that stay in model_dir/trace.
};

class TraceService {
 public:
  static std::unique_ptr<TraceService> Make(TraceServiceOptions options);
  // REQUIRES: the server is gone.
  virtual ~TraceService() = default;
  virtual grpc::Service* service() = 0;
  // Ends the calls that tasks keep open, and takes no further requests. Blocks until a trace in
  // progress is written, or for `limit`. Called at the end of the job, before the server ends.
  virtual void Close(Duration limit) = 0;
};

}  // namespace muster::chief
