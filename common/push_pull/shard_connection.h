// The worker's end of a data connection to the primary of one shard. It sends requests as gradients
// become available and receives answers, in both directions at once. Row requests of all tables
// that are queued at the same time form one request. Never blocks: its user polls the connection.
// Not thread-safe.
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
#include "common/transport/data_connection.h"
#include "common/transport/shared_memory.h"

namespace muster::ps {

struct RowPull;

struct DensePull {
  std::optional<int64_t> newer_than;  // Returns parameters only if the chunk has had more updates.
};

// The operation on one chunk. A push returns the parameters, unless the chunk belongs to a table.
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
  Pushed pushed;  // For a pull, only its `updates` is set.
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
    // Both or neither. Memory to share with the server, which may decline. It holds the gradients
    // of dense pushes, each at its chunk's position.
    const transport::SharedMemory* gradients = nullptr;
    std::unique_ptr<transport::SharedMemory> memory;
  };
  ShardConnection(std::unique_ptr<transport::DataConnection> connection, Options options);

  // Queues a transfer. Answers come in the same order. Memory that a transfer points to is sent
  // without a copy.
  void Ask(const Transfer& transfer) { queued_.push_back(transfer); }
  // Sends and receives as much as possible now, and appends answers. Returns false if nothing could
  // be moved. After an error the connection is unusable. The error is the server's own message if
  // it sent one.
  absl::StatusOr<bool> Pump(std::vector<ChunkAnswer>* answers);
  // Returns the unanswered transfers in order, for the next connection.
  std::vector<Transfer> Unanswered() const;

  bool idle() const { return welcomed_ && queued_.empty() && frames_.empty(); }
  short PollEvents() const { return connection_->PollEvents(true, sending()); }
  bool Buffered() const { return connection_->Buffered(); }
  int fd() const { return connection_->fd(); }
  bool shares_memory() const { return in_memory_; }
  bool welcomed() const { return welcomed_; }
  // Why the server declined to share memory. "" if it was not offered or not declined.
  const std::string& declined() const { return declined_; }

 private:
  // A request until it is answered, or the opening frame.
  struct Frame {
    Operation operation = Operation::kPull;
    std::vector<Transfer> transfers;
    transport::FrameHeader header;
    std::vector<RequestPart> parts;
    std::vector<uint16_t> narrowed;  // The gradient, if it is compressed.
    std::vector<iovec> out;          // The whole frame.
    size_t bytes = 0, data_bytes = 0;
    size_t reply_bytes = 0;  // Bytes of data in the reply.
    uint32_t data_crc = 0;
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

  std::deque<Transfer> queued_;  // Not prepared yet.
  std::deque<Frame> frames_;     // Prepared and not answered.
  size_t sent_frames_ = 0;       // The number of frames at the front that are sent.
  size_t sent_ = 0;              // Bytes sent of the next frame.
  std::optional<Offer> offer_;
  absl::Status broken_;  // The error of a failed send. The server may have sent the reason before.

  std::vector<std::byte> inbox_;  // Received bytes, from `taken_` to `have_`.
  size_t taken_ = 0, have_ = 0;
  Incoming incoming_ = Incoming::kHeader;
  std::vector<iovec> into_;  // The destination of a payload, filled up to `filled_`.
  size_t filled_ = 0;
  transport::FrameHeader header_;
  Reply reply_;
  std::vector<ReplyPart> parts_;
  std::string message_;
  std::vector<uint16_t> narrowed_;
};

}  // namespace muster::ps
