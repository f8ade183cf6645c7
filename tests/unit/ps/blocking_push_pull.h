// A simple client of a parameter server, for tests. It transfers one chunk after the other over a
// DataConnection, and blocks.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/push.h"
#include "common/push_pull/wire.h"
#include "common/transport/data_connection.h"

namespace muster::push_pull {

struct ChunkTransfer {
  int chunk = 0;
  std::span<const float> gradient;  // Empty: the chunk is only pulled.
  std::span<float> parameters;      // The destination. Empty: parameters are discarded.
  int64_t pulled = 0;               // ChunkPush::pulled.
  bool done = false;                // Set by PushPull.
  Pushed result;
};

struct TransferOptions {
  uint64_t sequence = 0;  // The number of the push.
  double learning_rate = 0;
  int64_t lease = 0;
};

inline absl::StatusOr<transport::FrameHeader> Answer(transport::DataConnection& connection,
                                                     MonotonicTime deadline,
                                                     const transport::AbortSignal& abort) {
  transport::FrameHeader header;
  MUSTER_RETURN_IF_ERROR(
      connection.Exchange({}, std::as_writable_bytes(std::span(&header, 1)), deadline, abort));
  if (!IsError(header)) return header;
  std::string message(header.payload_bytes, 0);
  MUSTER_RETURN_IF_ERROR(
      connection.Exchange({}, std::as_writable_bytes(std::span(message)), deadline, abort));
  return ErrorOf(header, message);
}

inline absl::Status OpenConnection(transport::DataConnection& connection, int worker,
                                   uint64_t incarnation, uint64_t layout, MonotonicTime deadline,
                                   const transport::AbortSignal& abort) {
  const transport::ConnectionInfo& info = connection.info();
  const transport::FrameHeader header =
      EncodeOpen({kWireVersion, static_cast<uint32_t>(worker), incarnation, layout, info.generation,
                  static_cast<uint32_t>(info.to)},
                 0);
  return connection.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, abort);
}

// Transfers the chunks that are not `done`. Must be called after OpenConnection.
inline absl::Status PushPull(transport::DataConnection& connection, const TransferOptions& options,
                             std::span<ChunkTransfer> transfers, MonotonicTime deadline,
                             const transport::AbortSignal& abort) {
  for (ChunkTransfer& t : transfers) {
    if (t.done) continue;
    Request request;
    request.operation = t.gradient.empty() ? Operation::kPull : Operation::kPush;
    request.sequence = options.sequence;
    request.lease = options.lease;
    const RequestPart part{static_cast<uint32_t>(t.chunk), 0, t.pulled, options.learning_rate};
    const transport::FrameHeader header =
        EncodeRequest(request, {&part, 1}, t.gradient.size_bytes());
    absl::Status sent =
        connection.Exchange(std::as_bytes(std::span(&header, 1)), {}, deadline, abort);
    if (sent.ok())
      sent = connection.Exchange(std::as_bytes(std::span(&part, 1)), {}, deadline, abort);
    if (sent.ok()) sent = connection.Exchange(std::as_bytes(t.gradient), {}, deadline, abort);
    // A server sends the reason before it closes the connection.
    absl::StatusOr<transport::FrameHeader> answer = Answer(connection, deadline, abort);
    if (answer.ok() && DecodeWelcome(*answer).ok()) answer = Answer(connection, deadline, abort);
    MUSTER_RETURN_IF_ERROR(answer.status());
    MUSTER_RETURN_IF_ERROR(DecodeReply(*answer).status());
    ReplyPart reply;
    MUSTER_RETURN_IF_ERROR(
        connection.Exchange({}, std::as_writable_bytes(std::span(&reply, 1)), deadline, abort));
    std::vector<float> parameters((answer->payload_bytes - sizeof reply) / sizeof(float));
    MUSTER_RETURN_IF_ERROR(
        connection.Exchange({}, std::as_writable_bytes(std::span(parameters)), deadline, abort));
    std::copy_n(parameters.begin(), t.parameters.size(), t.parameters.begin());
    t.result = {reply.applied != 0, reply.updates, reply.staleness};
    t.done = true;
  }
  return absl::OkStatus();
}

}  // namespace muster::push_pull
