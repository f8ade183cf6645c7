#include "ps/server_connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/crc32c.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

template <typename T>
std::span<std::byte> BytesOf(T* object) {
  return {reinterpret_cast<std::byte*>(object), sizeof *object};
}
std::span<std::byte> BytesOf(std::span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size_bytes()};
}
uint32_t CrcOf(std::span<const float> values) {
  return Crc32c({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

class Server {
 public:
  Server(transport::DataConnection& connection, DenseStore& store, const ServeOptions& options,
         const transport::AbortSignal& abort)
      : connection_(connection), store_(store), options_(options), abort_(abort) {
    int64_t longest = 0;
    for (const Chunk& chunk : options.chunks) longest = std::max(longest, chunk.elements());
    gradient_.resize(longest);
    answer_.resize(sizeof(FrameHeader) / sizeof(float) + longest);
  }

  absl::Status Run() {
    absl::Status status = TakeOpen();
    while (status.ok()) {
      absl::StatusOr<bool> next = Next();
      status = next.status();
      if (next.ok() && !*next) return absl::OkStatus();
    }
    Tell(status);
    return status;
  }

 private:
  absl::Status Receive(std::span<std::byte> into, Duration limit) {
    return connection_.Exchange({}, into, Clock::now() + limit, abort_);
  }
  absl::Status TakeOpen();
  // One request. False: the worker has closed the connection.
  absl::StatusOr<bool> Next();
  absl::Status TakeGradient(const FrameHeader& header, const Request& request, size_t elements);
  absl::Status Answer(const Request& request, size_t elements);
  void Tell(const absl::Status& error);

  transport::DataConnection& connection_;
  DenseStore& store_;
  const ServeOptions& options_;
  const transport::AbortSignal& abort_;
  Open open_;
  std::vector<float> gradient_;
  std::vector<float> answer_;  // a header, and parameters: they leave in one write
};

absl::Status Server::TakeOpen() {
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(Receive(BytesOf(&header), options_.stall));
  MUSTER_ASSIGN_OR_RETURN(open_, DecodeOpen(header));
  if (open_.layout != options_.layout)
    return ConfigurationError(
        fmt::format("worker {} has other variables, or divides them in another way, than this "
                    "parameter server: give all tasks the same job",
                    open_.worker));
  return absl::OkStatus();
}

absl::StatusOr<bool> Server::Next() {
  FrameHeader header;
  // The end of the stream between two requests is no error.
  iovec first{&header, sizeof header};
  size_t got = 0;
  const MonotonicTime deadline = Clock::now() + options_.idle;
  while (got == 0) {
    const absl::StatusOr<size_t> read = connection_.TryRead({&first, 1});
    if (!read.ok()) return false;
    got = *read;
    if (got > 0) break;
    transport::Interest interest{&connection_, true, false};
    const transport::WaitResult result = transport::WaitReady({&interest, 1}, deadline, abort_);
    if (result == transport::WaitResult::kAborted) return Superseded("the server is closing");
    if (result == transport::WaitResult::kDeadline)
      return DeadlinePassed(fmt::format("worker {} asked for nothing for {:g} s", open_.worker,
                                        Seconds(options_.idle)));
  }
  MUSTER_RETURN_IF_ERROR(Receive(BytesOf(&header).subspan(got), options_.stall));
  MUSTER_ASSIGN_OR_RETURN(const Request request, DecodeRequest(header));
  if (request.chunk >= options_.chunks.size())
    return ConfigurationError(fmt::format("there is no chunk {}: this server holds {}",
                                          request.chunk, options_.chunks.size()));
  const auto elements = static_cast<size_t>(options_.chunks[request.chunk].elements());
  if (request.push || header.payload_bytes != 0)
    MUSTER_RETURN_IF_ERROR(TakeGradient(header, request, elements));
  MUSTER_RETURN_IF_ERROR(Answer(request, elements));
  return true;
}

absl::Status Server::TakeGradient(const FrameHeader& header, const Request& request,
                                  size_t elements) {
  if (!request.push || header.payload_bytes != elements * sizeof(float))
    return ConfigurationError(
        fmt::format("a request about chunk {} has a payload of {} bytes, not {}", request.chunk,
                    header.payload_bytes, request.push ? elements * sizeof(float) : 0));
  const std::span<float> gradient(gradient_.data(), elements);
  MUSTER_RETURN_IF_ERROR(Receive(BytesOf(gradient), options_.stall));
  if (request.checksum && CrcOf(gradient) != request.payload_crc)
    return PeerLost(fmt::format("a gradient of chunk {} was damaged on its way", request.chunk));
  return absl::OkStatus();
}

absl::Status Server::Answer(const Request& request, size_t elements) {
  const size_t head = sizeof(FrameHeader) / sizeof(float);
  const std::span<float> out(answer_.data() + head, request.pull ? elements : 0);
  Reply reply;
  reply.chunk = request.chunk;
  const int chunk = static_cast<int>(request.chunk);
  if (request.push) {
    const PushKey key{static_cast<int>(open_.worker), open_.incarnation, request.sequence};
    MUSTER_ASSIGN_OR_RETURN(
        const Pushed pushed,
        store_.Apply(chunk,
                     {key, request.pulled, request.learning_rate, {gradient_.data(), elements}},
                     out));
    reply.applied = pushed.applied;
    reply.updates = pushed.updates;
    reply.staleness = pushed.staleness;
  } else {
    MUSTER_ASSIGN_OR_RETURN(reply.updates, store_.Pull(chunk, out));
  }
  reply.checksum = request.checksum;
  if (reply.checksum) reply.payload_crc = CrcOf(out);
  const FrameHeader header = EncodeReply(reply, out.size_bytes());
  std::copy_n(reinterpret_cast<const std::byte*>(&header), sizeof header,
              reinterpret_cast<std::byte*>(answer_.data()));
  return connection_.Exchange(BytesOf(std::span<float>(answer_.data(), head + out.size())), {},
                              Clock::now() + options_.stall, abort_);
}

void Server::Tell(const absl::Status& error) {
  if (abort_.is_set()) return;
  std::string message;
  FrameHeader header = EncodeError(error, &message);
  const MonotonicTime deadline = Clock::now() + std::chrono::seconds(1);
  if (connection_.Exchange(BytesOf(&header), {}, deadline, abort_).ok())
    (void)connection_.Exchange(std::as_bytes(std::span(message)), {}, deadline, abort_);
  connection_.Shutdown();
}

}  // namespace

absl::Status Serve(transport::DataConnection& connection, DenseStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort) {
  return Server(connection, store, options, abort).Run();
}

}  // namespace muster::ps
