#include "ps/server_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/base/crc32c.h"
#include "common/push_pull/narrow.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

// Requests whose payloads lie in shared memory are headers alone, and those about rows of several
// tables are small: many come with one system call.
constexpr size_t kInbox = 64 * sizeof(FrameHeader), kInboxOfRows = 64 << 10;
// Their answers are held back while more requests are here, for the same reason. The former not for
// long: the worker copies one chunk while another one is applied.
constexpr size_t kOutbox = 2, kOutboxOfRows = 64 << 10;
constexpr size_t kHead = sizeof(FrameHeader) / sizeof(float);

template <typename T>
std::span<std::byte> BytesOf(T* object) {
  return {reinterpret_cast<std::byte*>(object), sizeof *object};
}
template <typename T>
std::span<std::byte> BytesOf(std::vector<T>& values, size_t count) {
  return std::as_writable_bytes(std::span(values)).first(count * sizeof(T));
}

class Server {
 public:
  Server(transport::DataConnection& connection, DenseStore& store, const ServeOptions& options,
         const transport::AbortSignal& abort)
      : connection_(connection), store_(store), options_(options), abort_(abort) {
    for (const Chunk& chunk : options.chunks) longest_ = std::max(longest_, chunk.elements());
    inbox_.resize(options.widths.empty() ? kInbox : kInboxOfRows);
    answer_.resize(kHead + longest_);
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
  absl::Status Receive(std::span<std::byte> into, Duration limit);
  absl::Status Send(std::span<const std::byte> bytes) {
    return connection_.Exchange(bytes, {}, Clock::now() + options_.stall, abort_);
  }
  absl::Status TakeOpen();
  absl::Status TakeOffer(const Offer& offer);
  // One request. False: the worker has closed the connection.
  absl::StatusOr<bool> Next();
  // False: the worker has closed the connection.
  absl::StatusOr<bool> AwaitRequest();
  absl::Status TakeGradient(const FrameHeader& header, const Request& request);
  absl::Status TakeRows(const FrameHeader& header, const Request& request);
  absl::Status AnswerRows(const Request& request);
  absl::Status Answer(const Request& request);
  absl::Status SendParameters(const Request& request, Reply reply, std::span<float> out);
  // Memory for an answer at the end of the outbox: its header's place, and so many elements.
  std::span<float> ReserveAnswer(size_t elements);
  // What was reserved last is an answer about rows.
  absl::Status HoldRows(const Request& request, Reply reply, std::span<float> out);
  // Before anything that was applied ahead is answered.
  absl::Status AwaitBackup();
  absl::Status Flush();
  void Tell(const absl::Status& error);

  transport::DataConnection& connection_;
  DenseStore& store_;
  const ServeOptions& options_;
  const transport::AbortSignal& abort_;
  Open open_;
  int64_t longest_ = 0;                                          // chunk, in elements
  std::unique_ptr<transport::SharedMemory> gradients_, memory_;  // both or none

  std::vector<std::byte> inbox_;  // from taken_ to have_
  size_t taken_ = 0, have_ = 0;
  std::vector<float> outbox_;  // answers, up to held_
  size_t held_ = 0, answers_ = 0;
  std::vector<int> ahead_;     // chunks
  std::vector<float> pushed_;  // the gradient of one chunk
  std::span<const float> gradient_;
  std::vector<uint64_t> rows_;      // what came about rows
  std::vector<float> answer_;       // a header, and parameters: they leave in one write
  std::vector<uint16_t> narrowed_;  // the same, or a gradient, with compression
};

absl::Status Server::Receive(std::span<std::byte> into, Duration limit) {
  const size_t here = std::min(into.size(), have_ - taken_);
  std::memcpy(into.data(), inbox_.data() + taken_, here);
  taken_ += here;
  for (into = into.subspan(here); !into.empty();) {
    const iovec rest{into.data(), into.size()};
    MUSTER_ASSIGN_OR_RETURN(const size_t read, connection_.TryRead({&rest, 1}));
    if (read == 0) break;
    into = into.subspan(read);
  }
  if (into.empty()) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(Flush());
  return connection_.Exchange({}, into, Clock::now() + limit, abort_);
}

absl::Status Server::TakeOpen() {
  FrameHeader header;
  MUSTER_RETURN_IF_ERROR(Receive(BytesOf(&header), options_.stall));
  MUSTER_ASSIGN_OR_RETURN(open_, DecodeOpen(header));
  std::array<char, kOfferBytes> offer;
  if (header.payload_bytes != 0) MUSTER_RETURN_IF_ERROR(Receive(BytesOf(&offer), options_.stall));
  if (open_.layout != options_.layout)
    return ConfigurationError(
        fmt::format("worker {} has other variables, or divides them in another way, than this "
                    "parameter server: give all tasks the same job",
                    open_.worker));
  const transport::ConnectionInfo& here = connection_.info();
  if (open_.view != here.generation || static_cast<int>(open_.shard) != here.to)
    return Superseded(
        fmt::format("worker {} came for shard {} in view {:#x}, this is shard {} in view {:#x}",
                    open_.worker, open_.shard, open_.view, here.to, here.generation));
  std::string why;
  if (header.payload_bytes != 0) {
    const absl::Status taken = TakeOffer(DecodeOffer(offer));
    if (!taken.ok()) why = Message(taken);
  }
  const FrameHeader welcome = EncodeWelcome({memory_ != nullptr}, &why);
  MUSTER_RETURN_IF_ERROR(Send(std::as_bytes(std::span(&welcome, 1))));
  return Send(std::as_bytes(std::span(why)));
}

absl::Status Server::TakeOffer(const Offer& offer) {
  if (!options_.share_memory) return PeerLost("the server does not share memory");
  const int64_t elements = options_.chunks.empty() ? 0 : options_.chunks.back().end;
  for (const transport::SharedMemory::Place& place : {offer.gradients, offer.parameters})
    if (place.bytes != elements * sizeof(float))
      return PeerLost(
          fmt::format("the memory has {} bytes, not {}", place.bytes, elements * sizeof(float)));
  MUSTER_ASSIGN_OR_RETURN(auto gradients, transport::SharedMemory::Open(offer.gradients, false));
  MUSTER_ASSIGN_OR_RETURN(memory_, transport::SharedMemory::Open(offer.parameters, true));
  gradients_ = std::move(gradients);
  return absl::OkStatus();
}

absl::StatusOr<bool> Server::AwaitRequest() {
  if (have_ - taken_ >= sizeof(FrameHeader)) return true;
  std::memmove(inbox_.data(), inbox_.data() + taken_, have_ - taken_);
  have_ -= std::exchange(taken_, 0);
  const bool ahead = memory_ != nullptr || !options_.widths.empty();
  const size_t room = ahead ? inbox_.size() : sizeof(FrameHeader);
  while (have_ < sizeof(FrameHeader)) {
    const Duration limit = have_ == 0 ? options_.idle : options_.stall;
    iovec into{inbox_.data() + have_, room - have_};
    const absl::StatusOr<size_t> read = connection_.TryRead({&into, 1});
    // The end of the stream between two requests is no error.
    if (!read.ok() && have_ == 0) {
      (void)Flush();  // it may still read
      return false;
    }
    MUSTER_RETURN_IF_ERROR(read.status());
    have_ += *read;
    if (*read > 0) continue;
    MUSTER_RETURN_IF_ERROR(Flush());
    transport::Interest interest{&connection_, true, false};
    const transport::WaitResult result =
        transport::WaitReady({&interest, 1}, Clock::now() + limit, abort_);
    if (result == transport::WaitResult::kAborted) return Superseded("the server is closing");
    if (result == transport::WaitResult::kDeadline)
      return DeadlinePassed(
          fmt::format("worker {} asked for nothing for {:g} s", open_.worker, Seconds(limit)));
  }
  return true;
}

absl::StatusOr<bool> Server::Next() {
  MUSTER_ASSIGN_OR_RETURN(const bool more, AwaitRequest());
  if (!more) return false;
  FrameHeader header;
  std::memcpy(&header, inbox_.data() + taken_, sizeof header);
  taken_ += sizeof header;
  MUSTER_ASSIGN_OR_RETURN(const Request request, DecodeRequest(header));
  if (request.chunk >= options_.chunks.size())
    return ConfigurationError(fmt::format("there is no chunk {}: this server holds {}",
                                          request.chunk, options_.chunks.size()));
  if (request.in_memory && memory_ == nullptr)
    return ConfigurationError(
        fmt::format("worker {} speaks of shared memory, where none is", open_.worker));
  if (request.rows != options_.chunks[request.chunk].rows())
    return ConfigurationError(fmt::format("chunk {} is of {} embedding table", request.chunk,
                                          request.rows ? "no" : "an"));
  if (request.rows) MUSTER_RETURN_IF_ERROR(TakeRows(header, request));
  if (request.rows && request.pull) {
    MUSTER_RETURN_IF_ERROR(AnswerRows(request));
    return true;
  }
  if (!request.rows) MUSTER_RETURN_IF_ERROR(TakeGradient(header, request));
  MUSTER_RETURN_IF_ERROR(Answer(request));
  return true;
}

absl::Status Server::TakeGradient(const FrameHeader& header, const Request& request) {
  const Chunk& chunk = options_.chunks[request.chunk];
  const auto elements = static_cast<size_t>(chunk.elements());
  const bool comes = request.push && !request.in_memory;
  const size_t bytes = comes ? elements * BytesPerElement(request.compression) : 0;
  if (header.payload_bytes != bytes)
    return ConfigurationError(
        fmt::format("a request about chunk {} has a payload of {} bytes, not {}", request.chunk,
                    header.payload_bytes, bytes));
  gradient_ = {};
  if (!request.push) return absl::OkStatus();
  if (request.in_memory) {
    gradient_ = gradients_->floats().subspan(chunk.begin, elements);
    return absl::OkStatus();
  }
  if (pushed_.empty()) pushed_.resize(longest_);
  const bool narrow = request.compression != Compression::kNone;
  if (narrow && narrowed_.empty()) narrowed_.resize(sizeof(FrameHeader) / 2 + longest_);
  const std::span<std::byte> payload =
      narrow ? BytesOf(narrowed_, elements) : BytesOf(pushed_, elements);
  MUSTER_RETURN_IF_ERROR(Receive(payload, options_.stall));
  if (request.checksum && Crc32c(payload) != request.payload_crc)
    return PeerLost(fmt::format("a gradient of chunk {} was damaged on its way", request.chunk));
  const std::span<float> gradient(pushed_.data(), elements);
  if (narrow) Widen(request.compression, narrowed_.data(), gradient);
  gradient_ = gradient;
  return absl::OkStatus();
}

// The payload of a request about rows.
absl::Status Server::TakeRows(const FrameHeader& header, const Request& request) {
  if (header.payload_bytes > kMostRowBytes ||
      header.payload_bytes % (request.pull ? sizeof(uint64_t) : sizeof(float)) != 0)
    return ConfigurationError(
        fmt::format("a request about rows of chunk {} has a payload of {} "
                    "bytes",
                    request.chunk, header.payload_bytes));
  rows_.resize((header.payload_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  const std::span<std::byte> payload =
      std::as_writable_bytes(std::span(rows_)).first(header.payload_bytes);
  MUSTER_RETURN_IF_ERROR(Receive(payload, options_.stall));
  if (request.checksum && Crc32c(payload) != request.payload_crc)
    return PeerLost(fmt::format("rows of chunk {} were damaged on their way", request.chunk));
  gradient_ = {reinterpret_cast<const float*>(rows_.data()), payload.size() / sizeof(float)};
  return absl::OkStatus();
}

absl::Status Server::AnswerRows(const Request& request) {
  const auto width = options_.widths.find(options_.chunks[request.chunk].table);
  const size_t elements =
      rows_.size() * static_cast<size_t>(width == options_.widths.end() ? 0 : width->second);
  if (elements * sizeof(float) > kMostRowBytes)
    return ConfigurationError(
        fmt::format("{} rows of chunk {} were asked for at once", rows_.size(), request.chunk));
  const std::span<float> out = ReserveAnswer(elements);
  Reply reply;
  reply.chunk = request.chunk;
  MUSTER_ASSIGN_OR_RETURN(reply.updates,
                          store_.PullRows(static_cast<int>(request.chunk), rows_, out));
  return HoldRows(request, reply, out);
}

std::span<float> Server::ReserveAnswer(size_t elements) {
  if (outbox_.size() < held_ + kHead + elements) outbox_.resize(held_ + kHead + elements);
  return std::span(outbox_).subspan(held_ + kHead, elements);
}

absl::Status Server::HoldRows(const Request& request, Reply reply, std::span<float> out) {
  reply.checksum = request.checksum;
  if (reply.checksum) reply.payload_crc = Crc32c(std::as_bytes(out));
  const FrameHeader header = EncodeReply(reply, out.size_bytes());
  std::memcpy(outbox_.data() + held_, &header, sizeof header);
  held_ += kHead + out.size();
  return held_ * sizeof(float) >= kOutboxOfRows ? Flush() : absl::OkStatus();
}

absl::Status Server::Answer(const Request& request) {
  const Chunk& place = options_.chunks[request.chunk];
  const auto elements = static_cast<size_t>(place.elements());
  const int chunk = static_cast<int>(request.chunk);
  std::span<float> out;
  if (request.pull)
    out = request.in_memory ? memory_->floats().subspan(place.begin, elements)
                            : std::span(answer_).subspan(kHead, elements);
  Reply reply;
  reply.chunk = request.chunk;
  if (request.push) {
    DenseStore::Push push;
    push.key = {static_cast<int>(open_.worker), open_.incarnation, request.sequence};
    push.pulled = request.pulled;
    push.learning_rate = request.learning_rate;
    push.gradient = gradient_;
    push.floor = request.floor;
    if (options_.chief != nullptr)
      MUSTER_RETURN_IF_ERROR(options_.chief->Await(abort_, options_.new_view));
    push.ahead = true;
    MUSTER_ASSIGN_OR_RETURN(const Pushed pushed, store_.Apply(chunk, push, out));
    ahead_.push_back(chunk);
    reply.applied = pushed.applied;
    reply.refused = pushed.refused;
    reply.updates = pushed.updates;
    reply.staleness = pushed.staleness;
  } else if (request.if_newer && store_.serving() &&
             store_.standing(chunk).updates == request.pulled) {
    reply.same = true;
    reply.updates = request.pulled;
    out = {};
  } else {
    MUSTER_ASSIGN_OR_RETURN(reply.updates, store_.Pull(chunk, out));
  }
  if (request.rows) return HoldRows(request, reply, ReserveAnswer(0));
  if (!request.in_memory) return SendParameters(request, reply, out);
  ReserveAnswer(0);
  const FrameHeader header = EncodeReply(reply, 0);
  std::memcpy(outbox_.data() + held_, &header, sizeof header);
  held_ += kHead;
  return ++answers_ >= kOutbox ? Flush() : absl::OkStatus();
}

absl::Status Server::SendParameters(const Request& request, Reply reply, std::span<float> out) {
  MUSTER_RETURN_IF_ERROR(Flush());
  // The header lies right before the payload, in whichever memory that is.
  std::span<std::byte> all = BytesOf(answer_, kHead + out.size());
  if (request.compression != Compression::kNone && !out.empty()) {
    const size_t head = sizeof(FrameHeader) / sizeof(uint16_t);
    if (narrowed_.empty()) narrowed_.resize(head + longest_);
    Narrow(request.compression, out, narrowed_.data() + head);
    all = BytesOf(narrowed_, head + out.size());
  }
  const std::span<const std::byte> payload = all.subspan(sizeof(FrameHeader));
  reply.checksum = request.checksum;
  if (reply.checksum) reply.payload_crc = Crc32c(payload);
  const FrameHeader header = EncodeReply(reply, payload.size());
  std::memcpy(all.data(), &header, sizeof header);
  return Send(all);
}

absl::Status Server::AwaitBackup() {
  for (const int chunk : std::exchange(ahead_, {})) MUSTER_RETURN_IF_ERROR(store_.Await(chunk));
  return absl::OkStatus();
}

absl::Status Server::Flush() {
  MUSTER_RETURN_IF_ERROR(AwaitBackup());
  answers_ = 0;
  const size_t held = std::exchange(held_, 0);
  return held == 0 ? absl::OkStatus() : Send(std::as_bytes(std::span(outbox_).first(held)));
}

void Server::Tell(const absl::Status& error) {
  if (abort_.is_set()) return;
  (void)Flush();
  SendError(error, connection_, abort_);
}

}  // namespace

absl::Status Serve(transport::DataConnection& connection, DenseStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort) {
  return Server(connection, store, options, abort).Run();
}

}  // namespace muster::ps
