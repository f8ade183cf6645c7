// The links of one rank: its connections to other ranks (topology.h). Internal.
//
// Each link has a connection for notices. If operations send data over the link, it has a second
// connection for that data, so a rank can send notices during a long operation. There are two
// notices. kPresence lists the ranks that are known to have joined an operation. kFailure says why
// the sender gives up. Ranks forward notices, so all ranks receive them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/operation.h"
#include "common/collective/topology.h"
#include "common/transport/data_connection.h"

namespace muster::collective {

enum class FrameKind : uint16_t {
  kOperation = 1,  // Body: Signature. Payload: the data.
  kPresence,       // Body: u64 sequence. Payload: one bit per rank, set if it joined the operation.
  kFailure,        // Body: u32 status code. Payload: the sender's reason for giving up.
  kProbe = 100,    // The first frame of each connection (formation.cc).
  kVote,           // The vote on shared memory (formation.cc).
};

// The kinds of connection between two linked ranks.
enum class Channel : uint32_t { kNotices = 0, kData = 1 };

inline constexpr size_t kMaxFailureText = 4096;
// Returns the status for a received kFailure notice. `code` is its body and `text` its payload.
// `name` is the name of the sender.
absl::Status FailureFromNotice(uint32_t code, std::string_view text, std::string_view name);

class Links {
 public:
  struct Options {
    int rank = 0;
    Topology topology;
    std::vector<std::string> labels;  // The name of each rank for messages (RankName).
    // A link is lost if data is in flight on it, and the peer's host has acknowledged nothing for
    // this time.
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

  // Returns the data connection to `rank`. Returns a ProgramError if there is none. The topology
  // decides which links have one.
  absl::StatusOr<transport::DataConnection*> Data(int rank) const;

  struct Ready {
    transport::WaitResult result;
    bool data = false;     // At least one connection of `data` is ready.
    bool notices = false;  // Hear() has something to read.
  };
  // Blocks until a connection of `data` is ready, a notice arrives, abort() is set, or `until`.
  Ready Wait(std::span<const transport::Interest> data, MonotonicTime until);
  // Reads the notices that have arrived. Forwards which ranks have joined the operation. If a peer
  // gave up, returns the peer's reason.
  absl::Status ReadNotices();
  // Returns whether the link to `rank` was closed. Either that rank has ended or left the group, or
  // the network failed.
  bool Closed(int rank) const;

  // A rank calls AnnouncePresence if an operation takes longer than this time.
  static constexpr Duration kAnnouncePresenceAfter = std::chrono::milliseconds(100);
  // Sends a kPresence notice for the operation `signature` to the peers, once per operation. Does
  // nothing if all ranks see this in shared memory.
  void AnnouncePresence(const Signature& signature);
  // Records that `rank` has joined the operation `sequence`. Called if data or shared memory show
  // this.
  void RecordPresence(int rank, uint64_t sequence);
  // Returns PeerLost with the name of a link that is lost by Options::link_timeout. Called every
  // kCheckLinksEvery while an operation waits, because TCP reports a dead connection only after
  // many minutes.
  static constexpr Duration kCheckLinksEvery = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Sends `why` to the peers unless it is OK, and closes all connections.
  void Close(const absl::Status& why);
  // Finds the cause of `local`, the error of a closed connection. Waits up to 300 ms for the notice
  // of a rank that gave up, and returns that rank's reason. If no notice arrives, returns `local`
  // with the names of other peers with closed links.
  absl::Status Explain(absl::Status local);
  // Returns a DeadlinePassed error that names the ranks that did not join the operation
  // `signature`. With `of_all`, checks all ranks. A rank is only named if one of its peers has
  // joined, because peers report each other. The other ranks are only counted. Without `of_all`,
  // checks only the rank `waiting_for`, for operations in which ranks may finish early.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  // One of a link's two connections.
  struct Watched {
    std::unique_ptr<transport::DataConnection> connection;  // Null if the link does not have it.
    // When the data in flight was first seen without an acknowledgement.
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
  // Sends to the peers which ranks are known to have joined announced_.
  void ForwardPresence();
  void SendNotice(Link& link, FrameKind kind, const void* body, size_t body_bytes,
                  std::span<const std::byte> payload);

  const Options options_;
  std::vector<Link> links_;  // Ordered by rank.
  // The latest operation that each rank is known to have joined, by rank.
  std::vector<uint64_t> present_;
  uint64_t announced_ = 0;  // The latest operation for which this rank sent kPresence.
  // True if there is information about announced_ that was not forwarded yet.
  bool news_ = false;
  std::vector<transport::Interest> waits_;  // A buffer for Wait().
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
