// The links of one rank. A link connects two ranks. The two ranks are peers. topology.h determines
// which ranks have a link. Internal.
//
// Each link has a connection for notices, which are short messages about operations. If operations
// send data over the link, the link has a second connection for the data, so a notice never waits
// behind data. There are two kinds of notice. kPresence lists the ranks that have joined an
// operation, as far as the sender knows. kFailure says why the sender gives up. Ranks forward
// notices, so all ranks receive them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/group/topology.h"
#include "common/collective/operation.h"
#include "common/transport/data_connection.h"

namespace muster::collective {

// The kinds of frames on the connections. A frame is a header with a body of up to 48 bytes
// (transport::FrameHeader), and a payload.
enum class FrameKind : uint16_t {
  kOperation = 1,  // Body: Signature. Payload: the data.
  // Body: u64 sequence. Payload: one bit for each rank, which is 1 if the rank has joined the
  // operation.
  kPresence,
  kFailure,      // Body: u32 status code. Payload: why the sender gives up.
  kProbe = 100,  // The first frame of each connection (formation.cc).
  kVote,         // The vote on shared memory (formation.cc).
};

// The kinds of connection between two linked ranks.
enum class Channel : uint32_t { kNotices = 0, kData = 1 };

inline constexpr size_t kMaxFailureText = 4096;
// Returns the status for a received kFailure notice. `code` is the body of the notice, and `text`
// is its payload. `name` is the name of the sender.
absl::Status FailureFromNotice(uint32_t code, std::string_view text, std::string_view name);

class Links {
 public:
  struct Options {
    int rank = 0;
    Topology topology;
    std::vector<std::string> labels;  // The name of each rank, for messages (RankName).
    // A link is lost if it has data in flight, and the peer's host has not acknowledged any data
    // for this time.
    Duration link_timeout = std::chrono::seconds(10);
  };
  using Connections = std::map<std::pair<int, Channel>, std::unique_ptr<transport::DataConnection>>;
  Links(Options options, Connections connections);
  ~Links() { Close(absl::OkStatus()); }

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(topology().ring.size()); }
  const Topology& topology() const { return options_.topology; }
  std::string Name(int rank) const { return RankName(options_.labels, rank); }
  transport::AbortSignal& abort() { return abort_; }

  // Returns the data connection to `rank`. Returns a ProgramError if there is no link to `rank`, or
  // if the link carries no data.
  absl::StatusOr<transport::DataConnection*> Data(int rank) const;

  struct Ready {
    transport::WaitResult result;
    bool data = false;     // At least one connection of Wait's argument is ready.
    bool notices = false;  // ReadNotices() has something to read.
  };
  // Blocks until a connection of `data` is ready, a notice arrives, abort() is set, or the time
  // `until` is reached.
  Ready Wait(std::span<const transport::Interest> data, MonotonicTime until);
  // Reads the notices that have arrived. Forwards new information about the ranks that have joined
  // the operation. If a peer gave up, returns the peer's reason.
  absl::Status ReadNotices();
  // Returns whether the link to `rank` was closed. The cause is that the rank has ended or left the
  // group, or that the network failed.
  bool Closed(int rank) const;

  // A rank calls AnnouncePresence if an operation takes longer than this time.
  static constexpr Duration kAnnouncePresenceAfter = std::chrono::milliseconds(100);
  // Sends a kPresence notice for the operation `signature` to the peers, once per operation. Does
  // nothing if all ranks are on one host, because shared memory then shows which ranks have joined.
  void AnnouncePresence(const Signature& signature);
  // Records that `rank` has joined the operation `sequence`. Called when data from `rank`, or
  // shared memory, shows this.
  void RecordPresence(int rank, uint64_t sequence);
  // Returns PeerLost with the name of a lost link, if there is one (Options::link_timeout). Called
  // every kCheckLinksEvery while an operation waits, because TCP reports a dead connection only
  // after many minutes.
  static constexpr Duration kCheckLinksEvery = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Sends `why` to the peers if it is an error. Then closes all connections.
  void Close(const absl::Status& why);
  // Finds the cause of `local`, the error of a closed connection. Waits up to 300 ms for the notice
  // of a rank that gave up, and returns that rank's reason. If no notice arrives, returns `local`
  // and adds the names of the other peers whose links are closed.
  absl::Status Explain(absl::Status local);
  // Returns a DeadlinePassed error that names the ranks that did not join the operation
  // `signature`. If `of_all` is true, checks all ranks. A peer reports that a rank has joined only
  // after the peer itself has joined. If no peer of a rank has joined, the rank may therefore have
  // joined unnoticed. The error counts such a rank, but does not name it. If `of_all` is false,
  // checks only the rank `waiting_for`. Callers pass false for operations in which a rank may
  // finish before all ranks have joined.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  // One of a link's two connections.
  struct Watched {
    // Null if the link lacks this connection.
    std::unique_ptr<transport::DataConnection> connection;
    // The time of the first check that found data in flight without an acknowledgement.
    std::optional<MonotonicTime> silent_since;
  };
  struct Link {
    int rank = 0;
    Watched notices, data;
    std::vector<std::byte> received;  // The received bytes of an incomplete notice.
    std::vector<std::byte> unsent;    // The bytes of notices that the socket has not accepted yet.
    bool closed = false;              // The peer closed the link, or the network failed.
    absl::Status failure;             // The peer's reason for giving up. OK if it has sent none.
  };

  const Link* Find(int rank) const;
  static void Read(Link& link);
  absl::Status ParseNotices(Link& link);
  void HandlePresence(const transport::FrameHeader& header, std::span<const std::byte> bits);
  absl::Status WithOthersClosed(const absl::Status& local) const;
  absl::Status CheckSilence(Watched& watched, int rank, MonotonicTime now) const;
  // Tells the peers which ranks have joined the operation announced_, as far as this rank knows.
  void ForwardPresence();
  void SendNotice(Link& link, FrameKind kind, const void* body, size_t body_bytes,
                  std::span<const std::byte> payload);

  const Options options_;
  std::vector<Link> links_;  // Ordered by rank.
  // The sequence number of the latest operation that each rank has joined, as far as this rank
  // knows. Indexed by rank.
  std::vector<uint64_t> present_;
  // The sequence number of the latest operation for which this rank has sent kPresence.
  uint64_t announced_ = 0;
  // True if this rank has learned that more ranks have joined the operation announced_, and has not
  // sent this to its peers yet.
  bool news_ = false;
  std::vector<transport::Interest> waits_;  // A buffer for Wait().
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
