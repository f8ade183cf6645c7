// TraceService makes the traces that `muster trace` requests. A trace has the spans (named
// intervals of time) that tasks record during a few steps. TraceService tells the tasks to record,
// waits for their spans until a deadline, and writes one file to model_dir/trace/. If a task did
// not answer, the file lists the task's name, but no spans of it. TraceService needs no LibTorch.
//
// Thread-safe. A TraceService must outlive the gRPC server on which it is registered.
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
  // If empty, the service writes no files. `muster trace` still receives the trace.
  std::string model_dir;
  std::string cluster_digest;
  std::function<std::string()> run_id;
  // Names of the tasks, such as "worker:1", in the order in which a trace lists them.
  std::vector<std::string> tasks;
  bool independent = false;  // True if the job has parameter servers.
  // Called before each write. Returns an error if this chief no longer owns the model_dir. May be
  // null.
  std::function<absl::Status()> fence;
  checkpoint::FileSystem* files = nullptr;
  int keep = 20;  // Limit for the number of files in model_dir/trace. The oldest are removed.
};

class TraceService {
 public:
  static std::unique_ptr<TraceService> Make(TraceServiceOptions options);
  // REQUIRES: the gRPC server is destroyed.
  virtual ~TraceService() = default;
  virtual grpc::Service* service() = 0;
  // Ends the calls that tasks keep open, and refuses further requests. Blocks until a trace in
  // progress is written, but at most for `limit`. Called at the end of the job, before the gRPC
  // server is destroyed.
  virtual void Close(Duration limit) = 0;
};

}  // namespace muster::chief
