// Leases.Tell: a NextRequest that is larger than a message, in pieces. What has come is put
// together here, and then a call like Next.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "chief/parameter_server/lease_call.h"
#include "common/base/clock.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/bulk_calls.h"
#include "common/train/shown.h"

namespace muster {

// The limit for all pieces of a call.
inline constexpr Duration kTellTime = std::chrono::seconds(30);
// Workers tell so much after a step that changed large integer buffers, or showed pictures.
inline constexpr rpc::BulkCalls::Limits kTellLimits{
    .most = 4, .silence = std::chrono::seconds(10), .standstill = std::chrono::seconds(2)};

// What a batch and a part of a pass have shown, integer buffers, and 4 MB of everything else.
inline constexpr int64_t kMostToldBytes = 2 * kMostShownBytes + kMostIntegerBytes + (4 << 20);

// The reactor owns itself. gRPC calls it on its threads, one piece after the other; a caller that
// vanishes, whose deadline passes, or that `calls` cancels has no next piece, and its call ends.
grpc::ServerReadReactor<proto::TellPiece>* OpenTell(NextCall::Handler* handler,
                                                    rpc::BulkCalls* calls,
                                                    grpc::CallbackServerContext* context,
                                                    proto::NextReply* reply);

}  // namespace muster
