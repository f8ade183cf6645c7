#include "ps/server_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/files/crc32c.h"
#include "common/flight/spans.h"
#include "common/push_pull/narrow.h"
#include "common/push_pull/wire.h"

namespace muster::ps {
namespace {

using push_pull::IsRows;
using push_pull::Offer;
using push_pull::Operation;
using push_pull::ReplyPart;
using push_pull::RequestPart;
using transport::FrameHeader;

// Requests without data, and requests about rows, are read ahead. One system call then reads many.
constexpr size_t kInbox = 64 << 10;
// Answers are held back while further requests are in the inbox, so that one system call sends
// many. At most kMaxAnswers answers about dense chunks are held back, because the worker copies
// one chunk while the server applies another.
constexpr size_t kOutbox = 64 << 10, kMaxAnswers = 2;

size_t HeadBytes(size_t parts) { return sizeof(FrameHeader) + parts * sizeof(ReplyPart); }

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
  Server(transport::DataConnection& connection, ShardStore& store, const ServeOptions& options,
         const transport::AbortSignal& abort)
      : connection_(connection), store_(store), options_(options), abort_(abort), inbox_(kInbox) {}

  absl::Status Run() {
    absl::Status status = TakeOpen();
    while (status.ok()) {
      absl::StatusOr<bool> next = Next();
      status = next.status();
      if (next.ok() && !*next) return absl::OkStatus();
    }
    LogError(status);
    return status;
  }

 private:
  struct Sizes {
    uint64_t data = 0;      // The bytes of the request's data.
    uint64_t elements = 0;  // The elements of the reply's data.
  };

  absl::Status Receive(std::span<std::byte> into, Duration limit);
  absl::Status Send(std::span<const std::byte> bytes) {
    return connection_.Exchange(bytes, {}, Clock::now() + options_.stall, abort_);
  }
  absl::Status TakeOpen();
  absl::Status TakeOffer(const Offer& offer);
  // Handles one request. Returns false if the worker has closed the connection.
  absl::StatusOr<bool> Next();
  // Receives the head of a request. Returns false if the worker has closed the connection.
  absl::StatusOr<bool> AwaitRequest();
  absl::StatusOr<Sizes> CheckParts() const;
  absl::Status CheckRows(const RequestPart& part, Sizes* sizes) const;
  absl::Status TakeData(size_t bytes);
  absl::Status AnswerRows(size_t elements);
  absl::Status AnswerChunk();
  void NoteLease(int64_t lease);
  absl::Status Apply(const RequestPart& part, std::span<const float> gradient, std::span<float> out,
                     ReplyPart* reply);
  // Returns memory at the end of the outbox for the data of an answer with `parts` parts.
  std::span<float> ReserveAnswer(size_t parts, size_t elements);
  // Adds the answer to the outbox. Its data must be in the memory of ReserveAnswer. Sends the
  // outbox unless more answers are to follow soon.
  absl::Status Hold(std::span<const ReplyPart> parts, size_t data_bytes);
  // Waits until the backup has the pushes of ahead_. Called before their answers are sent.
  absl::Status AwaitBackup();
  absl::Status Flush();
  void LogError(const absl::Status& error);

  transport::DataConnection& connection_;
  ShardStore& store_;
  const ServeOptions& options_;
  const transport::AbortSignal& abort_;
  push_pull::Open open_;
  std::unique_ptr<transport::SharedMemory> gradients_, memory_;  // Both are set, or none.

  std::vector<std::byte> inbox_;  // Valid from taken_ to have_.
  size_t taken_ = 0, have_ = 0;
  push_pull::Request request_;
  std::vector<RequestPart> parts_;
  std::vector<uint64_t> data_;  // The received data, aligned for keys.
  std::vector<float> wide_;     // With compression: data or parameters in float32.
  std::vector<float> outbox_;   // Answers that are held back.
  size_t held_ = 0;             // The bytes of the answers that are held back.
  size_t answers_ = 0;          // The number of answers that are held back.
  std::vector<int> ahead_;      // Chunks with pushes that the backup may not have yet.
  std::vector<ReplyPart> replies_;
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
  MUSTER_ASSIGN_OR_RETURN(open_, push_pull::DecodeOpen(header));
  Offer offer;
  if (header.payload_bytes != 0) MUSTER_RETURN_IF_ERROR(Receive(BytesOf(&offer), options_.stall));
  if (open_.layout != options_.layout)
    return ConfigurationError(
        fmt::format("worker {} has other variables, or divides them in another way, than this "
                    "parameter server: give all tasks the same job",
                    open_.worker));
  const transport::ConnectionInfo& here = connection_.info();
  // Pushes on this connection count as pushes of open_.worker.
  if (static_cast<int>(open_.worker) != here.from)
    return absl::PermissionDeniedError(
        fmt::format("worker {} came, and speaks for worker {}", here.from, open_.worker));
  if (open_.view != here.generation || static_cast<int>(open_.shard) != here.to)
    return Superseded(
        fmt::format("worker {} came for shard {} in view {:#x}, this is shard {} in view {:#x}",
                    open_.worker, open_.shard, open_.view, here.to, here.generation));
  std::string why;
  if (header.payload_bytes != 0) {
    const absl::Status taken = TakeOffer(offer);
    if (!taken.ok()) why = Message(taken);
  }
  const FrameHeader welcome = push_pull::EncodeWelcome({memory_ != nullptr}, &why);
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
  const size_t room = ahead ? inbox_.size() : sizeof(FrameHeader) + sizeof(RequestPart);
  while (have_ < sizeof(FrameHeader)) {
    const Duration limit = have_ == 0 ? options_.idle : options_.stall;
    iovec into{inbox_.data() + have_, room - have_};
    const absl::StatusOr<size_t> read = connection_.TryRead({&into, 1});
    // The end of the stream between two requests is not an error.
    if (!read.ok() && have_ == 0) {
      (void)Flush();  // The worker may still read.
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
  MUSTER_ASSIGN_OR_RETURN(request_, push_pull::DecodeRequest(header));
  parts_.resize(request_.parts);
  const std::span<std::byte> parts = std::as_writable_bytes(std::span(parts_));
  MUSTER_RETURN_IF_ERROR(Receive(parts, options_.stall));
  MUSTER_RETURN_IF_ERROR(push_pull::CheckParts(parts, request_.parts_crc));
  MUSTER_ASSIGN_OR_RETURN(const Sizes sizes, CheckParts());
  if (header.payload_bytes - parts.size() != sizes.data)
    return ConfigurationError(fmt::format("a request about chunk {} has {} bytes of data, not {}",
                                          parts_[0].chunk, header.payload_bytes - parts.size(),
                                          sizes.data));
  MUSTER_RETURN_IF_ERROR(TakeData(sizes.data));
  MUSTER_RETURN_IF_ERROR(IsRows(request_.operation) ? AnswerRows(sizes.elements) : AnswerChunk());
  return true;
}

// Checks a request before it changes anything or causes an allocation.
absl::StatusOr<Server::Sizes> Server::CheckParts() const {
  const bool rows = IsRows(request_.operation);
  if (request_.in_memory && memory_ == nullptr)
    return ConfigurationError(
        fmt::format("worker {} speaks of shared memory, where none is", open_.worker));
  Sizes sizes;
  for (const RequestPart& part : parts_) {
    if (part.chunk >= options_.chunks.size())
      return ConfigurationError(fmt::format("there is no chunk {}: this server holds {}",
                                            part.chunk, options_.chunks.size()));
    const push_pull::Chunk& chunk = options_.chunks[part.chunk];
    if (rows != chunk.rows())
      return ConfigurationError(
          fmt::format("chunk {} is of {} embedding table", part.chunk, rows ? "no" : "an"));
    if (rows) {
      MUSTER_RETURN_IF_ERROR(CheckRows(part, &sizes));
    } else if (request_.operation == Operation::kPush && !request_.in_memory) {
      sizes.data = chunk.elements() * push_pull::BytesPerElement(request_.compression);
    }
  }
  return sizes;
}

absl::Status Server::CheckRows(const RequestPart& part, Sizes* sizes) const {
  const auto width = static_cast<uint64_t>(options_.widths.at(options_.chunks[part.chunk].table));
  if (request_.operation == Operation::kPushRows) {
    sizes->data += part.count * sizeof(float);
    if (part.count % (2 + width) != 0)
      return ConfigurationError(
          fmt::format("chunk {}: {} elements are no whole number of rows of width {}", part.chunk,
                      part.count, width));
    return absl::OkStatus();
  }
  sizes->data += part.count * sizeof(uint64_t);
  if (part.count > (push_pull::kMaxRowBytes / sizeof(float) - sizes->elements) / width)
    return ConfigurationError(
        fmt::format("more than {} bytes of rows are asked for at once, {} of them of chunk {}",
                    push_pull::kMaxRowBytes, part.count, part.chunk));
  sizes->elements += part.count * width;
  return absl::OkStatus();
}

absl::Status Server::TakeData(size_t bytes) {
  MUSTER_RETURN_IF_ERROR(push_pull::ReceiveInPieces(
      bytes, &data_, [this](std::span<std::byte> into) { return Receive(into, options_.stall); }));
  const std::span<std::byte> data = std::as_writable_bytes(std::span(data_)).first(bytes);
  if (!request_.checksum || Crc32c(data) == request_.data_crc) return absl::OkStatus();
  return PeerLost(fmt::format("what was sent of chunk {} was damaged on its way", parts_[0].chunk));
}

void Server::NoteLease(int64_t lease) {
  if (options_.newest_lease == nullptr) return;
  int64_t newest = *options_.newest_lease;
  while (lease > newest && !options_.newest_lease->compare_exchange_weak(newest, lease)) {
  }
}

absl::Status Server::Apply(const RequestPart& part, std::span<const float> gradient,
                           std::span<float> out, ReplyPart* reply) {
  const push_pull::ChunkPush push{
      {static_cast<int>(open_.worker), open_.incarnation, request_.sequence, request_.lease},
      part.pulled,
      part.learning_rate,
      gradient,
      request_.floor != 0,
      /*ahead=*/true,
      /*shared=*/request_.in_memory != 0};
  if (options_.chief != nullptr)
    MUSTER_RETURN_IF_ERROR(options_.chief->Await(abort_, options_.new_view));
  NoteLease(request_.lease);
  const Span span("update chunk", static_cast<int32_t>(part.chunk));
  MUSTER_ASSIGN_OR_RETURN(const push_pull::Pushed pushed,
                          store_.Apply(static_cast<int>(part.chunk), push, out));
  ahead_.push_back(static_cast<int>(part.chunk));
  reply->applied = pushed.applied;
  reply->refused = pushed.refused;
  reply->updates = pushed.updates;
  reply->staleness = pushed.staleness;
  return absl::OkStatus();
}

absl::Status Server::AnswerRows(size_t elements) {
  const std::span<float> out = ReserveAnswer(parts_.size(), elements);
  replies_.clear();
  size_t taken = 0, filled = 0;  // The used part of data_ (floats or keys) and of `out`.
  for (const RequestPart& part : parts_) {
    ReplyPart& reply = replies_.emplace_back(ReplyPart{part.chunk});
    if (push_pull::IsPush(request_.operation)) {
      const float* const data = reinterpret_cast<const float*>(data_.data()) + taken;
      MUSTER_RETURN_IF_ERROR(Apply(part, {data, part.count}, {}, &reply));
      taken += part.count;
      continue;
    }
    const int chunk = static_cast<int>(part.chunk);
    const size_t count = part.count * options_.widths.at(options_.chunks[chunk].table);
    MUSTER_ASSIGN_OR_RETURN(reply.updates,
                            store_.PullRows(chunk, std::span(data_).subspan(taken, part.count),
                                            out.subspan(filled, count)));
    taken += part.count;
    filled += count;
  }
  return Hold(replies_, out.size_bytes());
}

absl::Status Server::AnswerChunk() {
  const RequestPart& part = parts_[0];
  const push_pull::Chunk& place = options_.chunks[part.chunk];
  const int chunk = static_cast<int>(part.chunk);
  const auto elements = static_cast<size_t>(place.elements());
  const bool narrow = request_.compression != push_pull::Compression::kNone;
  if (narrow && wide_.size() < 2 * elements) wide_.resize(2 * elements);
  std::span<float> out = request_.in_memory ? memory_->floats().subspan(place.begin, elements)
                         : narrow           ? std::span(wide_).subspan(elements, elements)
                                            : ReserveAnswer(1, elements);
  ReplyPart reply{part.chunk};
  if (request_.operation == Operation::kPush) {
    std::span<const float> gradient(reinterpret_cast<const float*>(data_.data()), elements);
    if (request_.in_memory) gradient = gradients_->floats().subspan(place.begin, elements);
    if (narrow) {
      push_pull::Widen(request_.compression, reinterpret_cast<const uint16_t*>(data_.data()),
                       std::span(wide_).first(elements));
      gradient = std::span(wide_).first(elements);
    }
    MUSTER_RETURN_IF_ERROR(Apply(part, gradient, out, &reply));
  } else if (request_.operation == Operation::kPullNewer && store_.serving() &&
             store_.chunk_version(chunk).updates == part.pulled) {
    reply.same = true;
    reply.updates = part.pulled;
    out = {};
  } else {
    MUSTER_ASSIGN_OR_RETURN(reply.updates, store_.Pull(chunk, out));
  }
  if (request_.in_memory && options_.shared_memory != nullptr)
    options_.shared_memory->Add(
        static_cast<int64_t>(out.size_bytes()),
        request_.operation == Operation::kPush ? place.elements() * int64_t{sizeof(float)} : 0);
  if (request_.in_memory) out = {};
  if (narrow || out.empty()) {
    const std::span<float> place_of_data = ReserveAnswer(1, out.size());
    if (narrow)
      push_pull::Narrow(request_.compression, out,
                        reinterpret_cast<uint16_t*>(place_of_data.data()));
  }
  return Hold({&reply, 1}, out.size() * push_pull::BytesPerElement(request_.compression));
}

std::span<float> Server::ReserveAnswer(size_t parts, size_t elements) {
  const size_t begin = (held_ + HeadBytes(parts)) / sizeof(float);
  if (outbox_.size() < begin + elements) outbox_.resize(begin + elements);
  return std::span(outbox_).subspan(begin, elements);
}

absl::Status Server::Hold(std::span<const ReplyPart> parts, size_t data_bytes) {
  std::byte* const at = std::as_writable_bytes(std::span(outbox_)).data() + held_;
  const size_t head = HeadBytes(parts.size());
  push_pull::Reply reply;
  reply.checksum = request_.checksum;
  if (reply.checksum) reply.data_crc = Crc32c(std::span<const std::byte>(at + head, data_bytes));
  const FrameHeader header = push_pull::EncodeReply(reply, parts, data_bytes);
  std::memcpy(at, &header, sizeof header);
  std::memcpy(at + sizeof header, parts.data(), parts.size_bytes());
  held_ += head + data_bytes;
  const bool few = IsRows(request_.operation) || ++answers_ < kMaxAnswers;
  // Compressed data may end between two floats, so no other answer can follow in the outbox.
  const bool more = few && held_ < kOutbox && request_.compression == push_pull::Compression::kNone;
  return more ? absl::OkStatus() : Flush();
}

absl::Status Server::AwaitBackup() {
  for (const int chunk : std::exchange(ahead_, {})) MUSTER_RETURN_IF_ERROR(store_.Await(chunk));
  return absl::OkStatus();
}

absl::Status Server::Flush() {
  MUSTER_RETURN_IF_ERROR(AwaitBackup());
  answers_ = 0;
  const size_t held = std::exchange(held_, 0);
  return held == 0 ? absl::OkStatus() : Send(std::as_bytes(std::span(outbox_)).first(held));
}

void Server::LogError(const absl::Status& error) {
  if (abort_.is_set()) return;
  (void)Flush();
  push_pull::SendError(error, connection_, abort_);
}

}  // namespace

absl::Status Serve(transport::DataConnection& connection, ShardStore& store,
                   const ServeOptions& options, const transport::AbortSignal& abort) {
  return Server(connection, store, options, abort).Run();
}

}  // namespace muster::ps
