// CheckpointStreams sends files of a checkpoint over gRPC to an evaluator that cannot read
// model_dir. rpc::BulkCalls (common/rpc/server/bulk_calls.h) limits the number of concurrent
// streams. A stream sends one chunk (a piece of the file) at a time. Two threads of
// CheckpointStreams read the files, so a disk that hangs does not delay other calls of the server.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/rpc/server/bulk_calls.h"
#include "common/rpc/server/worker_pool.h"
#include "proto/evaluation.pb.h"

namespace muster::chief {

// Thread-safe. Must outlive the gRPC server.
class CheckpointStreams {
 public:
  explicit CheckpointStreams(checkpoint::FileSystem* files) : files_(*files) {}
  // Starts to send the file at `path`. The returned reactor deletes itself. The stream ends early
  // if the evaluator disconnects, if it reads nothing for too long, or if the call's deadline
  // passes.
  grpc::ServerWriteReactor<proto::FetchChunk>* Open(grpc::CallbackServerContext* context,
                                                    const std::string& path);

 private:
  checkpoint::FileSystem& files_;
  rpc::BulkCalls calls_{rpc::BulkCalls::Limits(), "the chief ends"};
  // The last field, because its threads use the fields above.
  rpc::WorkerPool disk_{2};
};

// Returns a stream that immediately ends with the status `why`. The reactor deletes itself.
grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why);

}  // namespace muster::chief
