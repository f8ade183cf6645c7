// A worker's end of its data connection to the primary of one shard: requests go out as gradients
// are there, answers come in, both directions of the connection busy at once. Never blocks: its
// user polls the connection. For one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/push_pull/options.h"
#include "common/push_pull/push.h"
#include "common/push_pull/wire.h"
#include "common/transport/data_connection.h"
#include "common/transport/shared_memory.h"

namespace muster::ps {

struct RowPull;

// One chunk's turn. Gradient and parameters are the user's memory, and travel without a copy.
struct ChunkRequest {
  int chunk = 0;
  int64_t offset = 0, elements = 0;              // where the chunk lies in the shard's memory
  std::span<const float> gradient;               // empty: nothing is pushed
  std::span<const std::span<float>> parameters;  // the chunk's memory in pieces; none: not pulled
  uint64_t sequence = 0;                         // of the push
  int64_t lease = 0;                             // whose batch is pushed
  int64_t pulled = 0;                            // the chunk's updates as the last pull told them
  double learning_rate = 0;
  bool floor = false;     // DenseStore::Push's
  bool if_newer = false;  // of a pull: only where the chunk has more than `pulled` updates
  // About a chunk of a table: the gradient is PackRows, even an empty one; a pull brings these keys
  // and gets their rows.
  bool rows = false;
  std::span<const uint64_t> keys;
  RowPull* pull = nullptr;  // the client's, of rows that are pulled
  bool push() const { return rows ? parameters.empty() : !gradient.empty(); }
};

struct ChunkAnswer {
  ChunkRequest request;
  Pushed pushed;  // of a pull, only its `updates`
  int64_t bytes = 0;
  int64_t others = 0;  // RowPull's; the lane tells it
};

class ShardConnection {
 public:
  struct Options {
    Open open;
    bool checksum = false;
    Compression compression = Compression::kNone;
    // Both or none: the memory to share with the server, which may decline. Gradients of requests
    // lie there, at their chunk's place.
    const transport::SharedMemory* gradients = nullptr;
    std::unique_ptr<transport::SharedMemory> parameters;
  };
  ShardConnection(std::unique_ptr<transport::DataConnection> connection, Options options);

  // Answered in this order.
  void Ask(const ChunkRequest& request) { queued_.push_back(request); }
  // Moves what can be moved now, and appends what was answered. False: nothing could be. After an
  // error, which is the server's own sentence where it sent one, the connection is of no use.
  absl::StatusOr<bool> Pump(std::vector<ChunkAnswer>* answers);
  // What was asked and not answered, in order, without word of an end; for the next connection.
  std::vector<ChunkRequest> Unanswered() const;

  bool idle() const { return welcomed_ && queued_.empty() && asked_.empty(); }
  short PollEvents() const { return connection_->PollEvents(true, sending()); }
  int fd() const { return connection_->fd(); }
  bool shares_memory() const { return in_memory_; }
  bool welcomed() const { return welcomed_; }
  // Why the server does not share memory, where that was offered; "" otherwise.
  const std::string& declined() const { return declined_; }

 private:
  struct Outgoing {
    transport::FrameHeader header;
    std::span<const std::byte> payload;
    std::vector<uint16_t> narrowed;  // what `payload` is, when compressed
    size_t bytes() const { return sizeof header + payload.size(); }
  };
  enum class Incoming { kHeader, kParameters, kNarrowed, kMessage };

  bool sending() const;
  void Prepare();
  Outgoing MakeOutgoing(const ChunkRequest& request);
  absl::StatusOr<size_t> Send();
  absl::StatusOr<size_t> Receive();
  absl::Status Take(std::vector<ChunkAnswer>* answers);
  absl::Status TakeHeader(const transport::FrameHeader& header);
  absl::Status TakeReply(const transport::FrameHeader& header);
  absl::Status Finish(std::vector<ChunkAnswer>* answers);
  absl::Status CheckParameters() const;
  void Expect(Incoming what, std::span<std::byte> bytes);

  const std::unique_ptr<transport::DataConnection> connection_;
  const Options options_;
  bool welcomed_ = false, in_memory_ = false;
  std::string declined_;

  std::deque<ChunkRequest> queued_;  // not prepared yet
  std::deque<ChunkRequest> asked_;   // prepared, and perhaps sent
  std::deque<Outgoing> out_;
  size_t sent_ = 0;  // bytes of the first of them
  std::string offer_;
  absl::Status broken_;  // sending has failed: the server may have said why, before

  std::vector<std::byte> inbox_;  // bytes that came, from `taken_` to `have_`
  size_t taken_ = 0, have_ = 0;
  Incoming incoming_ = Incoming::kHeader;
  std::vector<iovec> into_;  // where the rest of a payload belongs, from `filled_` on
  size_t filled_ = 0;
  transport::FrameHeader header_;
  Reply reply_;
  std::string message_;
  std::vector<uint16_t> narrowed_;
};

}  // namespace muster::ps
