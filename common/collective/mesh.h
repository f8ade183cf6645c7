// The data connections of one rank to all others of its generation, and the frames on them.
// Operations send their data as one frame on the links that they use; on links that are free a
// rank says that it is there (when an operation takes long) and, once, why it gives up. Internal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/collective/operation.h"
#include "common/transport/data_connection.h"

namespace muster::collective {

enum class FrameKind : uint16_t {
  kOperation = 1,  // body: Signature; payload: the data
  kPresent,        // body: Signature of the operation that the sender has come to
  kLastWords,      // body: u32 status code; payload: the reason
};

// One rank's side of the connection to one other.
struct Link {
  std::unique_ptr<transport::DataConnection> connection;
  // Reading. A whole header that nobody has used yet is kept until the operation it belongs to.
  transport::FrameHeader header;
  size_t header_bytes = 0;
  // Writing: in the middle of an operation's frame nothing else may be said.
  bool sending = false;
  uint64_t present = 0;  // the latest operation the other is known to have come to
  bool lost = false;     // closed by the other side
  absl::Status last_words;
  // Something has been under way ever since, and nothing was acknowledged.
  std::optional<MonotonicTime> silent_since;
};

class Mesh {
 public:
  struct Options {
    int rank = 0, size = 1;
    std::vector<std::string> labels;
    // A host that acknowledges nothing for so long, though bytes are under way to it, is cut off.
    Duration link_timeout = std::chrono::seconds(10);
  };
  Mesh(Options options, std::vector<std::unique_ptr<transport::DataConnection>> connections);

  ~Mesh() { Close(absl::OkStatus()); }

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const std::vector<std::string>& labels() const { return options_.labels; }
  std::string Name(int rank) const { return RankName(options_.labels, rank); }
  Link& link(int rank) { return links_[rank]; }
  transport::AbortSignal& abort() { return abort_; }

  // Reads what there is of the next header of `rank`: true when an operation's frame is at hand
  // (its payload follows). Takes in presence and last words on the way; last words, or a closed
  // connection, are the error.
  absl::StatusOr<bool> ReadHeader(int rank);
  // Looks at every link that no operation is reading: the first last words found, or OK.
  absl::Status CheckAll();

  // How long an operation takes before it is worth saying that one is there.
  static constexpr Duration kSayPresentAfter = std::chrono::milliseconds(100);
  // Tells the others, once, that this rank has come to `signature`, where a link is free.
  void SendPresent(const Signature& signature);
  // To be asked every kLookAtLinks while an operation waits: PeerLost, with the name of the link,
  // once one has carried nothing for Options::link_timeout. No end of the connection tells of it
  // for many minutes.
  static constexpr Duration kLookAtLinks = std::chrono::milliseconds(500);
  absl::Status CheckLinks(MonotonicTime now);
  // Tells the others why (unless OK), where a link is free, and closes all connections.
  void Close(const absl::Status& why);
  // `local` is what this rank saw: a closed connection, or (`secondhand`) that another rank has
  // given up and is about to say why. Whoever it was may have said why to somebody: waits up to
  // 300 ms, or 1 s, for last words, which are the better story.
  absl::Status Explain(absl::Status local, bool secondhand = false);
  // DeadlinePassed that names the ranks not known to have come to `signature`: of all, or, where
  // not everybody has to be there to the end, `waiting_for`.
  absl::Status Late(const Signature& signature, int waiting_for, bool of_all,
                    MonotonicTime started) const;

 private:
  absl::Status ReadLastWords(int rank, Link& link);
  absl::Status WithOthersLost(const absl::Status& local) const;
  static void Drain(Link& link);
  void SendFrame(Link& link, FrameKind kind, const void* body, size_t body_bytes,
                 std::string_view payload);

  const Options options_;
  std::vector<Link> links_;
  uint64_t said_present_ = 0;
  transport::AbortSignal abort_;
};

}  // namespace muster::collective
