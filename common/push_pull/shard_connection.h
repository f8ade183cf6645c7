// The worker's end of a data connection to the primary of one shard. ShardChannel queues transfers,
// polls the connection and calls Pump, which sends and receives at the same time. Row transfers
// that are queued together become one request, whichever tables they belong to. Never blocks. Not
// thread-safe.
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

struct DensePull {
  // The reply has parameters only if the chunk has had more updates than this. Absent: the reply
  // always has them.
  std::optional<int64_t> newer_than;
};

// An operation on one chunk. The answer to a push contains the parameters, except for tables.
struct Transfer {
  int chunk = 0;
  std::variant<DensePull, ChunkPush, RowPull*> what;
  const ChunkPush* push() const { return std::get_if<ChunkPush>(&what); }
  RowPull* rows() const {
    RowPull* const* const pull = std::get_if<RowPull*>(&what);
    return pull == nullptr ? nullptr : *pull;
  }
};

struct ChunkAnswer {
  Transfer transfer;
  Pushed pushed;  // For a pull, only `updates` is set.
  int64_t bytes = 0;
};

class ShardConnection {
 public:
  // The destination of a chunk's parameters, in pieces.
  using Pieces = std::vector<std::span<float>>;
  struct Options {
    Open open;
    bool checksum = false;
    Compression compression = Compression::kNone;
    std::span<const Chunk> chunks;       // The shard's chunks.
    std::span<const Pieces> parameters;  // The destination of each chunk's parameters.
    // Memory that is offered to the server, which may decline it. Either both are set, or neither.
    // The gradient of a dense push lies in `gradients`, at its chunk's position. The server writes
    // parameters to `memory`.
    const transport::SharedMemory* gradients = nullptr;
    std::unique_ptr<transport::SharedMemory> memory;
    std::shared_ptr<transport::Traffic> traffic;  // Counts what passes through them. May be null.
  };
  ShardConnection(std::unique_ptr<transport::DataConnection> connection, Options options);

  // Queues a transfer. Answers have the order of transfers. The connection sends the transfer's
  // memory without a copy, so it must stay unchanged until the answer.
  void Ask(const Transfer& transfer) { queued_.push_back(transfer); }
  // Sends and receives as much as is possible without waiting, and appends answers. Returns false
  // if no byte was sent or received. After an error the connection is unusable. The error has the
  // server's message if the server sent one.
  absl::StatusOr<bool> Pump(std::vector<ChunkAnswer>* answers);
  // Returns the transfers without an answer, in order. The next connection sends them again.
  std::vector<Transfer> Unanswered() const;

  bool idle() const { return welcomed_ && queued_.empty() && frames_.empty(); }
  short PollEvents() const { return connection_->PollEvents(true, sending()); }
  bool Buffered() const { return connection_->Buffered(); }
  int fd() const { return connection_->fd(); }
  bool shares_memory() const { return in_memory_; }
  bool welcomed() const { return welcomed_; }
  // Why the server declined the offered memory. "" if it accepted it or none was offered.
  const std::string& declined() const { return declined_; }

 private:
  // A request that is not answered yet, or the opening frame.
  struct Frame {
    Operation operation = Operation::kPull;
    std::vector<Transfer> transfers;
    transport::FrameHeader header;
    std::vector<RequestPart> parts;
    std::vector<uint16_t> narrowed;  // The compressed gradient; empty without compression.
    std::vector<iovec> out;          // The whole frame.
    size_t bytes = 0, data_bytes = 0;
    size_t reply_bytes = 0;  // Bytes of data in the expected reply.
    uint32_t data_crc = 0;
    MonotonicTime begun;  // When the frame was prepared.
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
  std::deque<Frame> frames_;     // Frames without an answer.
  size_t sent_frames_ = 0;       // How many of the first frames were sent completely.
  size_t sent_ = 0;  // The number of bytes sent of the first frame that is not sent completely.
  std::optional<Offer> offer_;
  // The error of a failed send. Received bytes may still contain the server's reason.
  absl::Status broken_;

  std::vector<std::byte> inbox_;  // Received bytes, from `taken_` to `have_`.
  size_t taken_ = 0, have_ = 0;
  Incoming incoming_ = Incoming::kHeader;
  std::vector<iovec> into_;  // The destination of the payload that is being received.
  size_t filled_ = 0;        // Bytes of the payload received so far.
  transport::FrameHeader header_;
  Reply reply_;
  std::vector<ReplyPart> parts_;
  std::string message_;
  std::vector<uint16_t> narrowed_;
};

}  // namespace muster::push_pull
