// The streaming calls of proto::ParameterServer. Fill sets the content of shards. A shard is the
// part of the variables that one parameter server holds. Read and ReadRows return the content of a
// cut. A cut is a frozen copy of the shards, made by the call Cut. Each streaming call is a gRPC
// reactor with one message in flight. A call uses a thread only while the call handles a message,
// and not while the call waits for the chief's next message.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <map>
#include <memory>

#include "common/rpc/server/bulk_calls.h"
#include "proto/parameter_server.pb.h"
#include "ps/shard_host.h"

namespace muster::ps {

using HostPtr = std::shared_ptr<ShardHost>;
using CutPtr = std::shared_ptr<const std::map<int, ShardCut>>;  // Keyed by shard.

// The functions of the gRPC service (ps/service.h) that the streams call. Must outlive the streams.
class StreamHost {
 public:
  // Checks that the call is from the current chief, and that a chief has created the shards in this
  // process. If so, sets `*host` and returns OK. If not, returns an error. `term` is the chief's
  // term, a number above the terms of all earlier chiefs. `method` is for error messages.
  virtual grpc::Status Enter(const grpc::CallbackServerContext& context, const char* method,
                             uint32_t term, HostPtr* host) = 0;
  // Finds the cut that the request names. Returns an error if there is no such cut, or if the cut
  // does not contain the shard.
  virtual grpc::Status FindCut(const proto::ReadRequest& request, CutPtr* cut) const = 0;
  // Runs `work` on a thread of this service. `work` begins a call. Returns an error if too many
  // calls wait for a thread.
  virtual grpc::Status RunCall(std::function<void()> work) = 0;
  // Runs `work` on a thread of this service. `work` handles one message of a call that BulkCalls
  // has admitted. The service has one such thread for each call that BulkCalls may admit, so no
  // call waits for a thread that another call uses. Returns false if no memory is left.
  virtual bool RunPiece(std::function<void()> work) = 0;
  virtual rpc::BulkCalls& bulk() = 0;

 protected:
  ~StreamHost() = default;
};

// Each function returns a reactor that deletes itself when its call has ended.
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
