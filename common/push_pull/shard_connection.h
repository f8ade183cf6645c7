// A worker's end of its data connection to the primary of one shard: requests go out as gradients
// are there, answers come in, both directions of the connection busy at once. What is asked about
// rows at one time, of all tables, is one request. Never blocks: its user polls the connection. For
// one thread.
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
  std::optional<int64_t> newer_than;  // parameters only if the chunk has had more updates
};

// What is done with one chunk. A push brings the parameters back, unless the chunk is of a table.
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
  Pushed pushed;  // of a pull, only its `updates`
  int64_t bytes = 0;
};

class ShardConnection {
 public:
  // Where a chunk's parameters go, in pieces.
  using Pieces = std::vector<std::span<float>>;
  struct Options {
    Open open;
    bool checksum = false;
    Compression compression = Compression::kNone;
    std::span<const Chunk> chunks;       // of the shard
    std::span<const Pieces> parameters;  // likewise
    // Both or none: the memory to share with the server, which may decline. Gradients of dense
    // pushes lie there, at their chunk's place.
    const transport::SharedMemory* gradients = nullptr;
    std::unique_ptr<transport::SharedMemory> memory;
  };
  ShardConnection(std::unique_ptr<transport::DataConnection> connection, Options options);

  // Answered in this order. Memory that a transfer speaks of travels without a copy.
  void Ask(const Transfer& transfer) { queued_.push_back(transfer); }
  // Moves what can be moved now, and appends what was answered. False: nothing could be. After an
  // error, which is the server's own sentence where it sent one, the connection is of no use.
  absl::StatusOr<bool> Pump(std::vector<ChunkAnswer>* answers);
  // What was asked and not answered, in order; for the next connection.
  std::vector<Transfer> Unanswered() const;

  bool idle() const { return welcomed_ && queued_.empty() && frames_.empty(); }
  short PollEvents() const { return connection_->PollEvents(true, sending()); }
  bool Buffered() const { return connection_->Buffered(); }
  int fd() const { return connection_->fd(); }
  bool shares_memory() const { return in_memory_; }
  bool welcomed() const { return welcomed_; }
  // Why the server does not share memory, where that was offered; "" otherwise.
  const std::string& declined() const { return declined_; }

 private:
  // A request until it is answered, or the first frame.
  struct Frame {
    Operation operation = Operation::kPull;
    std::vector<Transfer> transfers;
    transport::FrameHeader header;
    std::vector<RequestPart> parts;
    std::vector<uint16_t> narrowed;  // a gradient, when compressed
    std::vector<iovec> out;          // all of it
    size_t bytes = 0, data_bytes = 0;
    size_t reply_bytes = 0;  // of data
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

  std::deque<Transfer> queued_;  // not prepared yet
  std::deque<Frame> frames_;     // prepared, and not answered
  size_t sent_frames_ = 0;       // the first ones, which have left
  size_t sent_ = 0;              // bytes of the next one
  std::optional<Offer> offer_;
  absl::Status broken_;  // sending has failed: the server may have said why, before

  std::vector<std::byte> inbox_;  // bytes that came, from `taken_` to `have_`
  size_t taken_ = 0, have_ = 0;
  Incoming incoming_ = Incoming::kHeader;
  std::vector<iovec> into_;  // where a payload belongs, filled up to `filled_`
  size_t filled_ = 0;
  transport::FrameHeader header_;
  Reply reply_;
  std::vector<ReplyPart> parts_;
  std::string message_;
  std::vector<uint16_t> narrowed_;
};

}  // namespace muster::ps
