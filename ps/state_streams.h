// The streaming calls of proto::ParameterServer: Fill, Read and ReadRows. Each call is a gRPC
// reactor with one message in flight. It uses a thread only while it handles a message, not while
// it waits for the chief.
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
using CutPtr = std::shared_ptr<const std::map<int, ShardCut>>;  // By shard.

// The functions of the service that the streams call. The service must outlive them.
class StreamHost {
 public:
  // Returns OK if the call is of the current chief and the chief has created the shards here. Sets
  // `*host`.
  virtual grpc::Status Enter(const grpc::CallbackServerContext& context, const char* method,
                             uint32_t term, HostPtr* host) = 0;
  // Finds the named copy of the shard.
  virtual grpc::Status FindCut(const proto::ReadRequest& request, CutPtr* cut) const = 0;
  // Starts a call's work on a thread that is not gRPC's. Returns an error if too many calls wait
  // for a thread.
  virtual grpc::Status RunCall(std::function<void()> work) = 0;
  // Starts the work for one piece of an admitted call. It waits for no other call. Returns false if
  // no memory is left.
  virtual bool RunPiece(std::function<void()> work) = 0;
  virtual rpc::BulkCalls& bulk() = 0;

 protected:
  ~StreamHost() = default;
};

// Each reactor deletes itself when its call has ended.
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
