// Leases.Tell carries a NextRequest that is too large for one message, in pieces. OpenTellCall
// joins the pieces and passes the request to the handler, as Leases.Next does.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "chief/parameter_server/lease_call.h"
#include "common/base/clock.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/bulk_calls.h"
#include "common/train/shown.h"

namespace muster::chief {

// Timeout for all pieces of a call.
inline constexpr Duration kTellCallTimeout = std::chrono::seconds(30);
// Limits for concurrent Tell calls. Workers need Tell only after a step that changed large integer
// buffers or reported images.
inline constexpr rpc::BulkCalls::Limits kTellCallLimits{
    .most = 4, .silence = std::chrono::seconds(10), .standstill = std::chrono::seconds(2)};

// Limit for one request: the images and other reports of a batch and of a part of a pass, the
// integer buffers, and 4 MiB for everything else.
inline constexpr int64_t kMaxTellBytes =
    2 * kMaxShownBytes + push_pull::kMaxIntegerBytes + (4 << 20);

// Starts a Tell call. The returned reactor deletes itself. gRPC delivers the pieces in order, on
// its own threads. The call ends early if the caller disconnects, its deadline passes, or `calls`
// cancels it.
grpc::ServerReadReactor<proto::TellPiece>* OpenTellCall(NextCall::Handler* handler,
                                                        rpc::BulkCalls* calls,
                                                        grpc::CallbackServerContext* context,
                                                        proto::NextReply* reply);

}  // namespace muster::chief
