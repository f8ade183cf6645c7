#include "common/collective/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::collective {
namespace {

using transport::DataConnection;
using transport::FrameHeader;
using transport::Interest;
using transport::WaitReady;
using transport::WaitResult;

constexpr size_t kMaxLastWords = 4096;
constexpr Duration kExplainFor = std::chrono::milliseconds(300);
constexpr Duration kExplainSecondhandFor = std::chrono::seconds(1);

}  // namespace

Mesh::Mesh(Options options, std::vector<std::unique_ptr<DataConnection>> connections)
    : options_(std::move(options)), links_(options_.size) {
  for (int r = 0; r < size(); ++r) links_[r].connection = std::move(connections[r]);
}

absl::StatusOr<bool> Mesh::ReadHeader(int rank) {
  Link& link = links_[rank];
  if (!link.last_words.ok()) return link.last_words;
  for (;;) {
    if (link.header_bytes < sizeof link.header) {
      const iovec into{reinterpret_cast<char*>(&link.header) + link.header_bytes,
                       sizeof link.header - link.header_bytes};
      absl::StatusOr<size_t> n = link.connection->TryRead({&into, 1});
      if (!n.ok()) {
        link.lost = true;
        return PeerLost(
            fmt::format("Lost the data connection to {}: {}.", Name(rank), Message(n.status())));
      }
      link.header_bytes += *n;
      if (link.header_bytes < sizeof link.header) return false;
    }
    if (link.header.magic != FrameHeader::kMagic) {
      return PeerLost(fmt::format("{} sent bytes that are no frame.", Name(rank)));
    }
    const auto kind = static_cast<FrameKind>(link.header.kind);
    if (kind == FrameKind::kLastWords) return ReadLastWords(rank, link);
    Signature signature;
    std::memcpy(&signature, link.header.body, sizeof signature);
    link.present = std::max(link.present, signature.sequence);
    if (kind == FrameKind::kOperation) return true;
    link.header_bytes = 0;
  }
}

absl::Status Mesh::ReadLastWords(int rank, Link& link) {
  uint32_t code = 0;
  std::memcpy(&code, link.header.body, sizeof code);
  // Sent in one go with the header; a moment's wait covers a slow network.
  std::string text(std::min<size_t>(link.header.payload_bytes, kMaxLastWords), '\0');
  transport::AbortSignal never;
  const absl::Status read = link.connection->Exchange({}, std::as_writable_bytes(std::span(text)),
                                                      Clock::now() + kExplainFor, never);
  if (!read.ok() || text.empty()) text = "no reason given";
  link.header_bytes = 0;
  link.last_words = absl::Status(
      code == 0 || code > 16 ? absl::StatusCode::kUnavailable : static_cast<absl::StatusCode>(code),
      text);
  // A reason that already says who is passed on as it is; only an abort names its origin.
  if (absl::IsAborted(link.last_words) || absl::IsCancelled(link.last_words)) {
    link.last_words = PeerLost(fmt::format("{} left the group: {}", Name(rank), text));
  }
  return link.last_words;
}

absl::Status Mesh::CheckAll() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || links_[r].connection == nullptr || links_[r].lost) continue;
    if (links_[r].header_bytes == sizeof(FrameHeader) && links_[r].last_words.ok()) continue;
    const absl::StatusOr<bool> header = ReadHeader(r);
    if (!header.ok() && !links_[r].lost) return header.status();
  }
  return absl::OkStatus();
}

void Mesh::SendFrame(Link& link, FrameKind kind, const void* body, size_t body_bytes,
                     std::string_view payload) {
  if (link.connection == nullptr || link.sending || link.lost) return;
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.payload_bytes = payload.size();
  std::memcpy(header.body, body, body_bytes);
  const iovec parts[] = {{&header, sizeof header},
                         {const_cast<char*>(payload.data()), payload.size()}};
  const absl::StatusOr<size_t> n = link.connection->TryWrite({parts, 2});
  // A buffer too full for this has a reader that is not there. A torn frame ends the link's use.
  if (n.ok() && *n != 0 && *n != sizeof header + payload.size()) link.sending = true;
}

void Mesh::SendPresent(const Signature& signature) {
  if (std::exchange(said_present_, signature.sequence) == signature.sequence) return;
  for (Link& link : links_) {
    SendFrame(link, FrameKind::kPresent, &signature, sizeof signature, {});
  }
}

absl::Status Mesh::CheckLinks(MonotonicTime now) {
  for (int r = 0; r < size(); ++r) {
    Link& link = links_[r];
    if (link.connection == nullptr || link.lost) continue;
    const std::optional<Duration> silence = link.connection->Unacknowledged();
    // What was sent after a long pause is not late because the last answer is old.
    if (!silence || (link.silent_since && now - *silence > *link.silent_since)) {
      link.silent_since.reset();
    }
    if (!silence) continue;
    if (!link.silent_since) link.silent_since = now;
    if (now - *link.silent_since < options_.link_timeout) continue;
    return PeerLost(fmt::format("{}: the other host has acknowledged nothing for {:.1f} s",
                                LinkName(options_.labels, rank(), r),
                                Seconds(now - *link.silent_since)));
  }
  return absl::OkStatus();
}

void Mesh::Close(const absl::Status& why) {
  const auto code = static_cast<uint32_t>(why.code());
  const std::string text(Message(why).substr(0, kMaxLastWords));
  for (Link& link : links_) {
    if (!why.ok()) SendFrame(link, FrameKind::kLastWords, &code, sizeof code, text);
    if (link.connection != nullptr) Drain(link);
    link.connection.reset();
    link.lost = true;
  }
}

// Closing a socket with unread bytes resets the connection, which may throw away what was sent
// last; a presence that nobody needed any more would cost the other side its result.
void Mesh::Drain(Link& link) {
  char rest[4096];
  const iovec into{rest, sizeof rest};
  for (int i = 0; i < 64; ++i) {
    const absl::StatusOr<size_t> n = link.connection->TryRead({&into, 1});
    if (!n.ok() || *n == 0) return;
  }
}

absl::Status Mesh::Explain(absl::Status local, bool secondhand) {
  const MonotonicTime until = Clock::now() + (secondhand ? kExplainSecondhandFor : kExplainFor);
  for (;;) {
    if (absl::Status words = CheckAll(); !words.ok()) return words;
    std::vector<Interest> open;
    for (int r = 0; r < size(); ++r) {
      Link& link = links_[r];
      if (link.connection == nullptr || link.lost) continue;
      if (link.header_bytes == sizeof(FrameHeader)) continue;  // an operation's data: no words
      open.push_back({link.connection.get(), true, false});
    }
    if (open.empty()) return WithOthersLost(local);
    if (WaitReady(open, until, abort_) != WaitResult::kReady) return WithOthersLost(local);
  }
}

// Whoever was in the middle of a frame when it gave up could leave no last words: then its closed
// connection and that of the one who was lost first look alike, and both are named.
absl::Status Mesh::WithOthersLost(const absl::Status& local) const {
  std::string others;
  for (int r = 0; r < size(); ++r) {
    const bool named = Message(local).find(Name(r)) != std::string_view::npos;
    if (r == rank() || !links_[r].lost || named) continue;
    others += (others.empty() ? "" : ", ") + Name(r);
  }
  if (others.empty()) return local;
  return absl::Status(
      local.code(), fmt::format("{} The connection to {} was closed too.", Message(local), others));
}

absl::Status Mesh::Late(const Signature& signature, int waiting_for, bool of_all,
                        MonotonicTime started) const {
  std::string absent;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || links_[r].present >= signature.sequence) continue;
    if (!of_all && r != waiting_for) continue;
    absent += (absent.empty() ? "" : ", ") + Name(r);
  }
  return DeadlinePassed(fmt::format("{} did not {} {} (operation {}) within {:.3g} s",
                                    absent.empty() ? Name(waiting_for) : absent,
                                    absent.empty() ? "finish" : "come to", signature.Text(),
                                    signature.sequence, Seconds(Clock::now() - started)));
}

}  // namespace muster::collective
