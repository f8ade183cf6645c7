// The connections of one rank to its linked ranks (see topology.h). Internal.
//
// Each link has a connection for notices. If operations send data over the link, it has a second
// connection, which carries only their frames. A rank can therefore send notices during a long
// operation. A kPresent notice lists the ranks that are known to have joined the operation. A
// kLastWords notice says why the sender gives up. Ranks forward both, so that all ranks learn them.
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
  kPresent,      // Body: u64 sequence. Payload: a bit for each rank that has joined that operation.
  kLastWords,    // Body: u32 status code. Payload: the sender's reason for giving up.
  kProbe = 100,  // The first frame of each connection (formation.cc).
  kVote,
};

// The kinds of connection between two linked ranks.
enum class Channel : uint32_t { kNotices = 0, kData = 1 };

inline constexpr size_t kMaxLastWords = 4096;
// Builds a status from a received kLastWords notice: `code` from its body and `text` from its
// payload. `name` is the sender.
absl::Status LastWords(uint32_t code, std::string_view text, std::string_view name);

class Links {
 public:
  struct Options {
    int rank = 0;
    Topology topology;
    std::vector<std::string> labels;
    // The error of CheckLinks is due when the peer's host has acknowledged nothing for this long
    // although bytes are in flight.
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

  // Returns the data connection to `rank`. Returns a ProgramError if this generation has opened no
  // data link to that rank, because its operations need none.
  absl::StatusOr<transport::DataConnection*> Data(int rank) const;

  struct Ready {
    transport::WaitResult result;
    bool data = false;     // At least one of `data` is ready.
    bool notices = false;  // There are notices for Hear().
  };
  Ready Wait(std::span<const transport::Interest> data, MonotonicTime until);
  // Reads the notices that have arrived, and forwards news about ranks that have joined. If a peer
  // gave up, returns its reason as the error.
  absl::Status Hear();
  // Returns true if the link to `rank` was closed: that rank has ended or left the group, or the
  // network failed.
  bool Closed(int rank) const;

  // An operation that takes longer than this makes its ranks announce their presence.
  static constexpr Duration kSayPresentAfter = std::chrono::milliseconds(100);
  // Announces to the peers, once for each operation, that this rank has joined `signature`. Does
  // nothing if all ranks see this in shared memory.
  void SendPresent(const Signature& signature);
  // Records that `rank` has joined the operation with number `sequence`. For callers that learn
  // this from data or from shared memory.
  void NotePresent(int rank, uint64_t sequence);
  // Returns PeerLost with the name of a link whose host has acknowledged nothing for
  // Options::link_timeout although data is in flight. Call it every kLookAtLinks while an operation
  // waits, because TCP reports a dead connection only after many minutes.
  static constexpr Duration kLookAtLinks = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Sends `why` to the peers unless it is OK, and closes all connections.
  void Close(const absl::Status& why);
  // Explains the error `local`, with which this rank saw a connection close. Waits up to 300 ms for
  // the notice of a rank that gave up, and returns that rank's reason. Without such a notice
  // returns `local`, and adds the names of the other peers whose links closed.
  absl::Status Explain(absl::Status local);
  // Returns DeadlinePassed with the names of the ranks that are not known to have joined
  // `signature`. With `of_all`, checks all ranks, and names a rank only if one of its peers has
  // joined. Ranks without such a peer cannot be judged and are only counted. Without `of_all`,
  // checks only `waiting_for`. This is for operations in which ranks may finish early.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  // One of a link's two connections. `connection` is null if the link does not have it.
  struct Watched {
    std::unique_ptr<transport::DataConnection> connection;
    // The time since which data has been in flight without an acknowledgement.
    std::optional<MonotonicTime> silent_since;
  };
  struct Link {
    int rank = 0;
    Watched notices, data;
    std::vector<std::byte> heard;  // The beginning of an incomplete notice.
    // The bytes of notices that the socket has not accepted yet.
    std::vector<std::byte> unsaid;
    bool closed = false;      // The peer closed the link, or the network failed.
    absl::Status last_words;  // The peer's reason for giving up. OK if it has sent none.
  };

  const Link* Find(int rank) const;
  static void Read(Link& link);
  absl::Status TakeNotices(Link& link);
  void TakePresent(const transport::FrameHeader& header, std::span<const std::byte> bits);
  absl::Status WithOthersClosed(const absl::Status& local) const;
  absl::Status CheckSilence(Watched& watched, int rank, MonotonicTime now) const;
  // Sends the peers the set of ranks that are known to have joined said_present_.
  void PassOnPresence();
  void Say(Link& link, FrameKind kind, const void* body, size_t body_bytes,
           std::span<const std::byte> payload);

  const Options options_;
  std::vector<Link> links_;  // Ordered by rank.
  // Indexed by rank: the latest operation that the rank is known to have joined.
  std::vector<uint64_t> present_;
  uint64_t said_present_ = 0;  // The latest operation that this rank announced.
  // True if this rank has learnt that others joined said_present_, and has not forwarded it yet.
  bool news_ = false;
  std::vector<transport::Interest> waits_;  // Buffer of Wait().
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
