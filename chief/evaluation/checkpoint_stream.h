// Streams files of a checkpoint to an evaluator that cannot read model_dir. A few streams run at a
// time, each with one chunk in flight. Threads of their own read the files, so that a disk that
// hangs delays no other call.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/rpc/bulk_calls.h"
#include "common/rpc/worker_pool.h"
#include "proto/evaluation.pb.h"

namespace muster {

// Thread-safe. Outlives the server.
class CheckpointStreams {
 public:
  explicit CheckpointStreams(checkpoint::FileSystem* files) : files_(*files) {}
  // The reactor owns itself. A reader that vanishes, whose deadline passes, or that stands still
  // fails the write that it waits for, and with it ends the stream.
  grpc::ServerWriteReactor<proto::FetchChunk>* Open(grpc::CallbackServerContext* context,
                                                    const std::string& path);

 private:
  checkpoint::FileSystem& files_;
  // An evaluator fetches one file at a time.
  rpc::BulkCalls calls_{rpc::BulkCalls::Limits(), "the chief ends"};
  rpc::WorkerPool disk_{2};  // last: it uses all of the above
};

grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why);

}  // namespace muster
