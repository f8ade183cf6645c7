// OpenTellCall receives a call of Leases.Tell. A worker usually asks the chief for work with
// Leases.Next. If the NextRequest is too large for one message, the worker calls Tell in place of
// Next and sends the request in pieces. OpenTellCall joins the pieces and passes the request to the
// handler as a NextCall.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "chief/parameter_server/lease_call.h"
#include "common/base/clock.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/server/bulk_calls.h"
#include "common/train/shown.h"

namespace muster::chief {

// Timeout for receiving all pieces of a call.
inline constexpr Duration kTellCallTimeout = std::chrono::seconds(30);
// Limits for concurrent Tell calls. The limits are low, because a worker needs Tell only for
// images, large integer buffers, large metrics, or many reports to a new chief.
inline constexpr rpc::BulkCalls::Limits kTellCallLimits{
    .most = 4, .silence = std::chrono::seconds(10), .standstill = std::chrono::seconds(2)};

// Limit for one request in bytes: images and histograms of training batches, images and histograms
// of a part of an evaluation pass, integer buffers, and at most 16 MiB of other fields.
inline constexpr int64_t kMaxTellBytes =
    2 * kMaxShownBytes + push_pull::kMaxIntegerBytes + (16 << 20);

// Starts to receive a Tell call. The returned reactor deletes itself. The call ends early if the
// worker disconnects, if the call's deadline passes, or if `calls` cancels the call.
grpc::ServerReadReactor<proto::TellPiece>* OpenTellCall(NextCall::Handler* handler,
                                                        rpc::BulkCalls* calls,
                                                        grpc::CallbackServerContext* context,
                                                        proto::NextReply* reply);

}  // namespace muster::chief
