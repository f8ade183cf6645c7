// The worker's end of a data connection to the primary server of one shard. A shard is the part of
// all variables that one parameter server holds. A chunk is a part of a shard (layout.h).
// ShardChannel queues transfers, polls the connection and calls Pump, which sends and receives. The
// connection combines consecutive small row transfers into one request, even across embedding
// tables. Never blocks. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/push_pull/options.h"
#include "common/push_pull/push.h"
#include "common/push_pull/wire.h"
#include "common/transport/counted_stream.h"
#include "common/transport/data_connection.h"
#include "common/transport/shared_memory.h"

namespace muster::push_pull {

struct RowPull;

// A pull of a chunk's parameters.
struct DensePull {
  // The answer has parameters only if the chunk has had more updates than this number. Absent: the
  // answer always has parameters.
  std::optional<int64_t> newer_than;
};

// An operation on one chunk. The answer to a push contains the chunk's new parameters, except for
// chunks of embedding tables.
struct Transfer {
  int chunk = 0;  // The index among the shard's chunks.
  std::variant<DensePull, ChunkPush, RowPull*> what;
  const ChunkPush* push() const { return std::get_if<ChunkPush>(&what); }
  RowPull* rows() const {
    RowPull* const* const pull = std::get_if<RowPull*>(&what);
    return pull == nullptr ? nullptr : *pull;
  }
};

struct ChunkAnswer {
  Transfer transfer;
  Pushed pushed;      // For a pull, only `updates` is set.
  int64_t bytes = 0;  // The number of bytes sent and received, without headers.
};

class ShardConnection {
 public:
  // The memory of a chunk's parameters, which may have several pieces.
  using Pieces = std::vector<std::span<float>>;
  struct Options {
    Open open;
    bool checksum = false;
    Compression compression = Compression::kNone;
    std::span<const Chunk> chunks;       // The shard's chunks.
    std::span<const Pieces> parameters;  // The destination of each chunk's parameters.
    // Two memory regions that the connection offers to the server. The server may decline the
    // offer. The server reads the gradients of dense pushes from `gradients`, at the chunk's
    // position. The server writes parameters to `memory`. The two fields are either both set or
    // both null.
    const transport::SharedMemory* gradients = nullptr;
    std::unique_ptr<transport::SharedMemory> memory;
    std::shared_ptr<transport::Traffic> traffic;  // Counts the regions' traffic. May be null.
  };
  ShardConnection(std::unique_ptr<transport::DataConnection> connection, Options options);

  // Queues a transfer. Answers come in the order of transfers. The connection sends the transfer's
  // memory without a copy. The caller must not change this memory before the answer arrives.
  void Ask(const Transfer& transfer) { queued_.push_back(transfer); }
  // Sends and receives as much as is possible without waiting. Appends the received answers to
  // `answers`. Returns false if no byte was sent or received. After an error, the connection is
  // unusable. If the server has sent an error, returns the server's error.
  absl::StatusOr<bool> Pump(std::vector<ChunkAnswer>* answers);
  // Returns the transfers that are not answered yet, in order.
  std::vector<Transfer> Unanswered() const;

  // Returns true if the server has accepted the connection and all transfers are answered.
  bool idle() const { return welcomed_ && queued_.empty() && frames_.empty(); }
  short PollEvents() const { return connection_->PollEvents(true, sending()); }
  bool Buffered() const { return connection_->Buffered(); }
  int fd() const { return connection_->fd(); }
  bool shares_memory() const { return in_memory_; }
  bool welcomed() const { return welcomed_; }
  // Returns the server's reason for declining the offered memory. Returns "" if the server accepted
  // the memory, or if this connection offered no memory.
  const std::string& declined() const { return declined_; }

 private:
  // The opening frame, or a request that is not answered yet.
  struct Frame {
    Operation operation = Operation::kPull;
    std::vector<Transfer> transfers;
    transport::FrameHeader header;
    std::vector<RequestPart> parts;
    std::vector<uint16_t> narrowed;  // The compressed gradient. Empty without compression.
    std::vector<iovec> out;          // The bytes of the whole frame.
    size_t bytes = 0, data_bytes = 0;
    size_t reply_bytes = 0;  // The number of bytes of data in the expected reply.
    uint32_t data_crc = 0;
    MonotonicTime begun;  // The time at which the frame was prepared.
  };
  enum class Incoming { kHeader, kReply, kMessage };

  bool sending() const;
  Operation OperationOf(const Transfer& transfer) const;
  bool Narrows(Operation operation) const {
    return options_.compression != Compression::kNone && !IsRows(operation);
  }
  void Prepare();
  void AddFrame();
  void AddData(std::span<const std::byte> data, Frame* frame) const;
  void AddPart(const Transfer& transfer, Frame* frame) const;
  absl::StatusOr<size_t> Send();
  absl::StatusOr<size_t> Receive();
  absl::Status Take(std::vector<ChunkAnswer>* answers);
  absl::Status TakeHeader(const transport::FrameHeader& header);
  absl::Status TakeReply(const transport::FrameHeader& header);
  absl::Status Finish(std::vector<ChunkAnswer>* answers);
  absl::Status CheckReply() const;
  void CopyParameters(int chunk) const;

  const std::unique_ptr<transport::DataConnection> connection_;
  const Options options_;
  bool welcomed_ = false, in_memory_ = false;
  std::string declined_;

  std::deque<Transfer> queued_;  // Transfers that are in no frame yet.
  std::deque<Frame> frames_;     // Frames that are not answered yet.
  // The first sent_frames_ frames of frames_ are completely sent. The first sent_ bytes of the next
  // frame are also sent.
  size_t sent_frames_ = 0;
  size_t sent_ = 0;
  std::optional<Offer> offer_;
  // The error of a failed send. The connection continues to receive, because the server may have
  // sent the reason.
  absl::Status broken_;

  std::vector<std::byte> inbox_;  // Received bytes, from `taken_` to `have_`.
  size_t taken_ = 0, have_ = 0;
  Incoming incoming_ = Incoming::kHeader;
  std::vector<iovec> into_;  // The destination of the payload that is being received.
  size_t filled_ = 0;        // The number of received bytes of this payload.
  transport::FrameHeader header_;
  Reply reply_;
  std::vector<ReplyPart> parts_;
  std::string message_;
  std::vector<uint16_t> narrowed_;
};

}  // namespace muster::push_pull
