// Streams a checkpoint file to an evaluator that cannot read model_dir.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/checkpoint/file_system.h"
#include "proto/evaluation.pb.h"

namespace muster {

// The reactor owns itself. Blocks gRPC's thread while the disk reads one chunk.
grpc::ServerWriteReactor<proto::FetchChunk>* StreamFile(checkpoint::FileSystem& files,
                                                        const std::string& path,
                                                        std::shared_ptr<void> counted);
grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why);

}  // namespace muster
