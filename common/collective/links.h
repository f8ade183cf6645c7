// The connections of one rank to those it is linked with (topology.h). Each link has a connection
// for notices, and, where data takes this way, a second one for nothing but the frames of
// operations: so a rank can always say that it is there (when an operation takes long), whom else
// it knows to be, and, once, why it gives up. What a rank hears it passes on, and so all know.
// Internal.
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
  kOperation = 1,  // body: Signature; payload: the data
  kPresent,        // body: u64 sequence; payload: a bit for each rank that has come to it
  kLastWords,      // body: u32 status code; payload: the reason
  kProbe = 100,    // formation.cc: the first frame of each connection
  kVote,
};

// What two linked ranks are connected by: the channel of each connection.
enum class Channel : uint32_t { kNotices = 0, kData = 1 };

inline constexpr size_t kMaxLastWords = 4096;
// A reason as it travels: the code in the header's body, the text behind it.
absl::Status LastWords(uint32_t code, std::string_view text, std::string_view name);

class Links {
 public:
  struct Options {
    int rank = 0;
    Topology topology;
    std::vector<std::string> labels;
    // A host that acknowledges nothing for so long, though bytes are under way to it, is cut off.
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

  // An error where this generation has no such link: an operation must not want it.
  absl::StatusOr<transport::DataConnection*> Data(int rank) const;

  struct Ready {
    transport::WaitResult result;
    bool data = false;     // one of `data` can be moved
    bool notices = false;  // there is something for Hear
  };
  Ready Wait(std::span<const transport::Interest> data, MonotonicTime until);
  // Takes in what the others have said, and passes on who has come. The first last words found are
  // the error.
  absl::Status Hear();
  // The link to `rank` was closed: it has ended, or left, or the network failed.
  bool Closed(int rank) const;

  // How long an operation takes before it is worth saying that one is there.
  static constexpr Duration kSayPresentAfter = std::chrono::milliseconds(100);
  // Tells the others, once, that this rank has come to `signature`. Where shared memory tells it,
  // nothing.
  void SendPresent(const Signature& signature);
  // `rank` has come to this operation: known from somewhere else.
  void NotePresent(int rank, uint64_t sequence);
  // To be asked every kLookAtLinks while an operation waits: PeerLost, with the name of the link,
  // once one has carried nothing for Options::link_timeout. No end of the connection tells of it
  // for many minutes.
  static constexpr Duration kLookAtLinks = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Tells the others why (unless OK) and closes all connections.
  void Close(const absl::Status& why);
  // `local` is what this rank saw, a closed connection. Whoever it was may have said why to
  // somebody: waits up to 300 ms for last words, which are the better story.
  absl::Status Explain(absl::Status local);
  // DeadlinePassed that names the ranks not known to have come to `signature`: of all, or, where
  // not everybody has to be there to the end, `waiting_for`. Of all are named those that somebody
  // who is there is linked with; who is behind them could not be heard, and is counted.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  // One of a link's two connections; null where there is none.
  struct Watched {
    std::unique_ptr<transport::DataConnection> connection;
    // Something has been under way ever since, and nothing was acknowledged.
    std::optional<MonotonicTime> silent_since;
  };
  struct Link {
    int rank = 0;
    Watched notices, data;
    std::vector<std::byte> heard;   // the beginning of a notice
    std::vector<std::byte> unsaid;  // notices that found no room, from the first byte on
    bool closed = false;            // by the other side
    absl::Status last_words;
  };

  const Link* Find(int rank) const;
  static void Read(Link& link);
  absl::Status TakeNotices(Link& link);
  void TakePresent(const transport::FrameHeader& header, std::span<const std::byte> bits);
  absl::Status WithOthersClosed(const absl::Status& local) const;
  absl::Status CheckSilence(Watched& watched, int rank, MonotonicTime now) const;
  // What is known of the operation that this rank said it has come to.
  void PassOnPresence();
  void Say(Link& link, FrameKind kind, const void* body, size_t body_bytes,
           std::span<const std::byte> payload);

  const Options options_;
  std::vector<Link> links_;        // by rising rank
  std::vector<uint64_t> present_;  // by rank: the latest operation it is known to have come to
  uint64_t said_present_ = 0;      // the operation that this rank said it has come to
  bool news_ = false;              // of others that have come to it, not passed on yet
  std::vector<transport::Interest> waits_;  // of Wait
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
