// Fill, Read and ReadRows of proto::ParameterServer as reactors: one message is in flight, and a
// thread is taken for what is done with it alone, not while the chief lets the stream wait.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <map>
#include <memory>

#include "common/rpc/bulk_calls.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

using HostPtr = std::shared_ptr<ShardHost>;
using CutPtr = std::shared_ptr<const std::map<int, ShardCut>>;  // by shard

// What the streams need of their service, which outlives them.
class StreamHost {
 public:
  // Whether the caller is the chief of now; `host` where it has created this server.
  virtual grpc::Status Enter(const grpc::CallbackServerContext& context, const char* method,
                             uint32_t epoch, HostPtr* host) = 0;
  // A copy of that name of that shard.
  virtual grpc::Status FindCut(const proto::ReadRequest& request, CutPtr* cut) const = 0;
  // On other threads than gRPC's. Not OK: too many wait for one. A piece of a call that was
  // admitted waits for no other call.
  virtual grpc::Status RunCall(std::function<void()> work) = 0;
  virtual bool RunPiece(std::function<void()> work) = 0;  // False: no memory is left.
  virtual rpc::BulkCalls& bulk() = 0;

 protected:
  ~StreamHost() = default;
};

// The reactors own themselves.
grpc::ServerReadReactor<proto::FillRequest>* OpenFill(StreamHost* service,
                                                      grpc::CallbackServerContext* context,
                                                      proto::FillReply* reply);
grpc::ServerWriteReactor<proto::ChunkContent>* OpenRead(StreamHost* service,
                                                        grpc::CallbackServerContext* context,
                                                        const proto::ReadRequest* request);
grpc::ServerWriteReactor<proto::RowsPiece>* OpenReadRows(StreamHost* service,
                                                         grpc::CallbackServerContext* context,
                                                         const proto::ReadRequest* request);

grpc::Status ToGrpc(const absl::Status& status);
grpc::Status Refusal(grpc::StatusCode code, const std::string& why);

}  // namespace muster::ps
