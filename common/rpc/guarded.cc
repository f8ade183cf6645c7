#include "common/rpc/guarded.h"

#include <fmt/format.h>

#include <exception>
#include <new>

namespace muster::rpc {

grpc::Status Guarded(const std::function<grpc::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    // No text, because a text needs memory, too.
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "");
  } catch (const std::exception& error) {
    return grpc::Status(grpc::StatusCode::UNKNOWN,
                        fmt::format("this process cannot do it: {}", error.what()));
  }
}

}  // namespace muster::rpc
