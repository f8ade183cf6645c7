// CheckpointStreams sends files of a checkpoint to an evaluator that cannot read model_dir.
// BulkCalls limits the number of concurrent streams. Each stream has one chunk in flight. Two
// threads of this object read the files, so a hanging disk delays no other call.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/rpc/bulk_calls.h"
#include "common/rpc/worker_pool.h"
#include "proto/evaluation.pb.h"

namespace muster::chief {

// Thread-safe. Must outlive the gRPC server.
class CheckpointStreams {
 public:
  explicit CheckpointStreams(checkpoint::FileSystem* files) : files_(*files) {}
  // Starts a stream of the file at `path`. The returned reactor deletes itself. The stream ends
  // early if the evaluator disconnects or stops reading, or if the call's deadline passes.
  grpc::ServerWriteReactor<proto::FetchChunk>* Open(grpc::CallbackServerContext* context,
                                                    const std::string& path);

 private:
  checkpoint::FileSystem& files_;
  // An evaluator fetches one file at a time.
  rpc::BulkCalls calls_{rpc::BulkCalls::Limits(), "the chief ends"};
  // Last, because its threads use the members above.
  rpc::WorkerPool disk_{2};
};

grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why);

}  // namespace muster::chief
