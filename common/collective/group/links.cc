#include "common/collective/group/links.h"

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

constexpr Duration kExplainFor = std::chrono::milliseconds(300);
// In bytes. A peer for which more bytes of notices are unsent does not read them.
constexpr size_t kMaxUnsentBytes = 64 << 10;

// Reads all unread bytes before a close. Closing a socket with unread bytes resets the connection.
// A reset may discard the last bytes that this side has sent, such as a result or a reason.
void Drain(DataConnection& connection) {
  char rest[4096];
  const iovec into{rest, sizeof rest};
  for (int i = 0; i < 64; ++i) {
    const absl::StatusOr<size_t> n = connection.TryRead({&into, 1});
    if (!n.ok() || *n == 0) return;
  }
}

}  // namespace

absl::Status FailureFromNotice(uint32_t code, std::string_view text, std::string_view name) {
  const absl::Status words(
      code == 0 || code > 16 ? absl::StatusCode::kUnavailable : static_cast<absl::StatusCode>(code),
      text.empty() ? "no reason given" : std::string(text));
  // Returns a reason that names its origin unchanged. Only an abort does not name its origin.
  if (!absl::IsAborted(words) && !absl::IsCancelled(words)) return words;
  return PeerLost(fmt::format("{} left the group: {}", name, Message(words)));
}

Links::Links(Options options, Connections connections)
    : options_(std::move(options)), present_(size()) {
  for (auto& [key, connection] : connections) {
    if (links_.empty() || links_.back().rank != key.first) links_.emplace_back().rank = key.first;
    Link& link = links_.back();
    (key.second == Channel::kNotices ? link.notices : link.data).connection = std::move(connection);
  }
}

const Links::Link* Links::Find(int rank) const {
  const auto at = std::lower_bound(links_.begin(), links_.end(), rank,
                                   [](const Link& link, int r) { return link.rank < r; });
  return at != links_.end() && at->rank == rank ? &*at : nullptr;
}

absl::StatusOr<DataConnection*> Links::Data(int rank) const {
  const Link* link = Find(rank);
  if (link != nullptr && link->data.connection != nullptr) return link->data.connection.get();
  return ProgramError(fmt::format(
      "{}: a collective operation wants a link that its generation has not opened. That is a fault "
      "of Muster.",
      LinkName(options_.labels, this->rank(), rank)));
}

Links::Ready Links::Wait(std::span<const Interest> data, MonotonicTime until) {
  waits_.assign(data.begin(), data.end());
  for (const Link& link : links_) {
    if (link.notices.connection == nullptr || link.closed) continue;
    waits_.push_back({link.notices.connection.get(), true, false});
  }
  Ready ready{WaitReady(waits_, until, abort_)};
  if (ready.result != WaitResult::kReady) return ready;
  for (size_t i = 0; i < waits_.size(); ++i) {
    (i < data.size() ? ready.data : ready.notices) |= waits_[i].ready;
  }
  return ready;
}

absl::Status Links::ReadNotices() {
  for (Link& link : links_) {
    if (link.notices.connection == nullptr) continue;
    if (link.failure.ok() && !link.closed) {
      Read(link);
      MUSTER_RETURN_IF_ERROR(ParseNotices(link));
    }
    if (!link.failure.ok()) return link.failure;
  }
  if (news_) ForwardPresence();
  return absl::OkStatus();
}

void Links::Read(Link& link) {
  for (;;) {
    std::byte bytes[4096];
    const iovec into{bytes, sizeof bytes};
    const absl::StatusOr<size_t> n = link.notices.connection->TryRead({&into, 1});
    if (!n.ok()) link.closed = true;
    if (!n.ok() || *n == 0) return;
    link.received.insert(link.received.end(), bytes, bytes + *n);
  }
}

absl::Status Links::ParseNotices(Link& link) {
  const size_t longest = std::max<size_t>(kMaxFailureText, (size() + 7) / 8);
  size_t at = 0;
  while (link.received.size() - at >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, link.received.data() + at, sizeof header);
    if (header.magic != FrameHeader::kMagic || header.payload_bytes > longest) {
      return PeerLost(fmt::format("{} sent bytes that are no frame.", Name(link.rank)));
    }
    if (link.received.size() - at < sizeof header + header.payload_bytes) break;
    const std::span<const std::byte> payload(link.received.data() + at + sizeof header,
                                             header.payload_bytes);
    at += sizeof header + payload.size();
    if (header.kind == static_cast<uint16_t>(FrameKind::kPresence)) {
      HandlePresence(header, payload);
    } else if (header.kind == static_cast<uint16_t>(FrameKind::kFailure)) {
      uint32_t code = 0;
      std::memcpy(&code, header.body, sizeof code);
      const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
      link.failure = FailureFromNotice(code, text, Name(link.rank));
      break;
    }
  }
  link.received.erase(link.received.begin(),
                      link.received.begin() + static_cast<std::ptrdiff_t>(at));
  return absl::OkStatus();
}

void Links::HandlePresence(const FrameHeader& header, std::span<const std::byte> bits) {
  uint64_t sequence = 0;
  std::memcpy(&sequence, header.body, sizeof sequence);
  for (int r = 0; r < size() && static_cast<size_t>(r / 8) < bits.size(); ++r) {
    if (((bits[r / 8] >> (r % 8)) & std::byte{1}) == std::byte{0}) continue;
    RecordPresence(r, sequence);
  }
}

bool Links::Closed(int rank) const {
  const Link* link = Find(rank);
  return link != nullptr && link->closed;
}

void Links::SendNotice(Link& link, FrameKind kind, const void* body, size_t body_bytes,
                       std::span<const std::byte> payload) {
  if (link.notices.connection == nullptr || link.closed || link.unsent.size() > kMaxUnsentBytes)
    return;
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.payload_bytes = payload.size();
  std::memcpy(header.body, body, body_bytes);
  for (const std::span<const std::byte> part : {std::as_bytes(std::span(&header, 1)), payload})
    link.unsent.insert(link.unsent.end(), part.begin(), part.end());
  const iovec from{link.unsent.data(), link.unsent.size()};
  const absl::StatusOr<size_t> n = link.notices.connection->TryWrite({&from, 1});
  const auto said = static_cast<std::ptrdiff_t>(n.value_or(link.unsent.size()));
  link.unsent.erase(link.unsent.begin(), link.unsent.begin() + said);
}

void Links::RecordPresence(int rank, uint64_t sequence) {
  if (present_[rank] >= sequence) return;
  // Only the operation for which this rank has sent kPresence is forwarded.
  news_ |= present_[rank] < announced_ && sequence >= announced_;
  present_[rank] = sequence;
}

void Links::AnnouncePresence(const Signature& signature) {
  if (!topology().data_needs_links()) return;
  if (std::exchange(announced_, signature.sequence) == signature.sequence) return;
  ForwardPresence();
}

void Links::ForwardPresence() {
  RecordPresence(rank(), announced_);
  news_ = false;
  std::vector<std::byte> bits((size() + 7) / 8);
  for (int r = 0; r < size(); ++r) {
    if (present_[r] >= announced_) bits[r / 8] |= std::byte{1} << (r % 8);
  }
  for (Link& link : links_) {
    SendNotice(link, FrameKind::kPresence, &announced_, sizeof announced_, bits);
  }
}

absl::Status Links::CheckLinks(MonotonicTime now) {
  for (Link& link : links_) {
    if (link.closed) continue;
    MUSTER_RETURN_IF_ERROR(CheckSilence(link.notices, link.rank, now));
    MUSTER_RETURN_IF_ERROR(CheckSilence(link.data, link.rank, now));
  }
  return absl::OkStatus();
}

absl::Status Links::CheckSilence(Watched& watched, int rank, MonotonicTime now) const {
  if (watched.connection == nullptr) return absl::OkStatus();
  const std::optional<Duration> silence = watched.connection->Unacknowledged();
  // Resets the start of the silence. After a long pause the last acknowledgement is old, but data
  // that was just sent is not late.
  if (!silence || (watched.silent_since && now - *silence > *watched.silent_since)) {
    watched.silent_since.reset();
  }
  if (!silence) return absl::OkStatus();
  if (!watched.silent_since) watched.silent_since = now;
  if (now - *watched.silent_since < options_.link_timeout) return absl::OkStatus();
  return PeerLost(fmt::format("{}: the other host has acknowledged nothing for {:.1f} s",
                              LinkName(options_.labels, this->rank(), rank),
                              Seconds(now - *watched.silent_since)));
}

void Links::Close(const absl::Status& why) {
  const auto code = static_cast<uint32_t>(why.code());
  const std::string text(Message(why).substr(0, kMaxFailureText));
  for (Link& link : links_) {
    if (!why.ok()) {
      SendNotice(link, FrameKind::kFailure, &code, sizeof code, std::as_bytes(std::span(text)));
    }
    for (Watched* watched : {&link.notices, &link.data}) {
      if (watched->connection != nullptr) Drain(*watched->connection);
      watched->connection.reset();
    }
    link.closed = true;
  }
}

absl::Status Links::Explain(absl::Status local) {
  const MonotonicTime until = Clock::now() + kExplainFor;
  for (;;) {
    if (absl::Status words = ReadNotices(); !words.ok()) return words;
    const bool all_closed = std::all_of(links_.begin(), links_.end(), [](const Link& link) {
      return link.closed || link.notices.connection == nullptr;
    });
    if (all_closed || Wait({}, until).result != WaitResult::kReady) return WithOthersClosed(local);
  }
}

// Adds the names of other closed links to `local`. Either several peers were lost together, or this
// rank has lost its network.
absl::Status Links::WithOthersClosed(const absl::Status& local) const {
  std::string others;
  for (const Link& link : links_) {
    const bool named = Message(local).find(Name(link.rank)) != std::string_view::npos;
    if (link.closed && !named) others += (others.empty() ? "" : ", ") + Name(link.rank);
  }
  if (others.empty()) return local;
  return absl::Status(
      local.code(), fmt::format("{} The connection to {} was closed too.", Message(local), others));
}

absl::Status Links::Late(const Signature& signature, int waiting_for, bool of_all,
                         MonotonicTime started) const {
  std::string absent;
  int unknown_ranks = 0;
  const auto has_come = [&](int r) { return r == rank() || present_[r] >= signature.sequence; };
  for (int r = 0; r < size(); ++r) {
    if (has_come(r) || (!of_all && r != waiting_for)) continue;
    const std::vector<int>& peers = topology().peers[r];
    if (of_all && std::none_of(peers.begin(), peers.end(), has_come)) {
      ++unknown_ranks;
    } else {
      absent += (absent.empty() ? "" : ", ") + Name(r);
    }
  }
  const std::string behind =
      unknown_ranks == 0 ? "" : fmt::format("; {} more could not be heard for them", unknown_ranks);
  return DeadlinePassed(fmt::format("{} did not {} {} (operation {}) within {:.3g} s{}",
                                    absent.empty() ? Name(waiting_for) : absent,
                                    absent.empty() ? "finish" : "come to", signature.Text(),
                                    signature.sequence, Seconds(Clock::now() - started), behind));
}

}  // namespace muster::collective
