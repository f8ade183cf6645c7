// The connections of one rank to the ranks that it is linked with (topology.h). Internal.
//
// Each link has a connection for notices. Where data uses the link, it has a second connection that
// carries only the frames of operations. A rank can therefore send notices during a long operation.
// A notice says that the rank is present and which other ranks it knows to be present. A last
// notice says why it gives up. A rank forwards what it receives, so that all ranks learn it.
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
  kPresent,        // Body: u64 sequence. Payload: one bit for each rank that has joined it.
  kLastWords,      // Body: u32 status code. Payload: the reason.
  kProbe = 100,    // The first frame of each connection (formation.cc).
  kVote,
};

// The kinds of connection between two linked ranks.
enum class Channel : uint32_t { kNotices = 0, kData = 1 };

inline constexpr size_t kMaxLastWords = 4096;
// Builds the status from a reason as it is sent: the code in the header's body, the text in the
// payload. `name` is the sender.
absl::Status LastWords(uint32_t code, std::string_view text, std::string_view name);

class Links {
 public:
  struct Options {
    int rank = 0;
    Topology topology;
    std::vector<std::string> labels;
    // Cuts a link when the peer's host has acknowledged nothing for this long although bytes are in
    // flight.
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

  // Returns the data connection to `rank`. Returns an error where this generation has no such link,
  // because no operation may use it.
  absl::StatusOr<transport::DataConnection*> Data(int rank) const;

  struct Ready {
    transport::WaitResult result;
    bool data = false;     // At least one of `data` is ready.
    bool notices = false;  // There are notices for Hear().
  };
  Ready Wait(std::span<const transport::Interest> data, MonotonicTime until);
  // Reads the notices that have arrived, and forwards which ranks have joined. If a rank gave up,
  // returns its reason as the error.
  absl::Status Hear();
  // True when the link to `rank` was closed: its process has ended, it left the group, or the
  // network failed.
  bool Closed(int rank) const;

  // Time that an operation takes before ranks announce their presence.
  static constexpr Duration kSayPresentAfter = std::chrono::milliseconds(100);
  // Announces to the peers, once for each operation, that this rank has joined `signature`. Does
  // nothing where all ranks see that in shared memory.
  void SendPresent(const Signature& signature);
  // Records that `rank` has joined this operation. For callers that learn it from data or from
  // shared memory.
  void NotePresent(int rank, uint64_t sequence);
  // Returns PeerLost with the name of a link whose host has acknowledged nothing for
  // Options::link_timeout while data was in flight. Called every kLookAtLinks while an operation
  // waits, because TCP reports a dead connection only after many minutes.
  static constexpr Duration kLookAtLinks = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Sends `why` to the peers unless it is OK, and closes all connections.
  void Close(const absl::Status& why);
  // Returns the best known reason for `local`, the closed connection that this rank saw. Waits up
  // to 300 ms for the reason of a rank that gave up, because it explains more. Returns `local`
  // otherwise.
  absl::Status Explain(absl::Status local);
  // Returns DeadlinePassed with the names of the ranks not known to have joined `signature`.
  // `of_all` considers all ranks. Without it only `waiting_for` is considered, for operations in
  // which ranks may finish early. With `of_all`, a rank is named only where one of its peers has
  // joined. The others cannot be judged and are only counted.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  // One of a link's two connections. The pointer is null where there is none.
  struct Watched {
    std::unique_ptr<transport::DataConnection> connection;
    // Data has been in flight without an acknowledgement since this time.
    std::optional<MonotonicTime> silent_since;
  };
  struct Link {
    int rank = 0;
    Watched notices, data;
    std::vector<std::byte> heard;  // The beginning of an incomplete notice.
    // Notices that the socket has not taken yet, from the first byte on.
    std::vector<std::byte> unsaid;
    bool closed = false;  // By the other side.
    absl::Status last_words;
  };

  const Link* Find(int rank) const;
  static void Read(Link& link);
  absl::Status TakeNotices(Link& link);
  void TakePresent(const transport::FrameHeader& header, std::span<const std::byte> bits);
  absl::Status WithOthersClosed(const absl::Status& local) const;
  absl::Status CheckSilence(Watched& watched, int rank, MonotonicTime now) const;
  // Sends what this rank knows of the operation that it has announced last.
  void PassOnPresence();
  void Say(Link& link, FrameKind kind, const void* body, size_t body_bytes,
           std::span<const std::byte> payload);

  const Options options_;
  std::vector<Link> links_;        // By rising rank.
  std::vector<uint64_t> present_;  // By rank: the latest operation that it is known to have joined.
  uint64_t said_present_ = 0;      // The latest operation that this rank announced.
  // True when other ranks have joined the announced operation and this rank has not forwarded that
  // yet.
  bool news_ = false;
  std::vector<transport::Interest> waits_;  // Buffer of Wait().
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
