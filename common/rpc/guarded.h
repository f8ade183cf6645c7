// Converts exceptions in the handlers of RPCs to errors. Thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include <functional>

namespace muster::rpc {

// Returns the result of `work`, or an error if `work` throws. gRPC does not catch the exceptions of
// reactors. Without Guarded, std::bad_alloc in one call would end the process.
grpc::Status Guarded(const std::function<grpc::Status()>& work);

}  // namespace muster::rpc
