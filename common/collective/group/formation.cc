#include "common/collective/group/formation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/base/logging.h"
#include "common/collective/engines/engine.h"
#include "common/collective/group/host_group.h"
#include "common/collective/group/links.h"
#include "common/collective/group/ring.h"
#include "common/transport/listener/data_listener.h"

namespace muster::collective {
namespace {

using transport::Admission;
using transport::DataConnection;
using transport::DataListener;
using transport::Dialing;
using transport::FrameHeader;

constexpr Duration kLook = std::chrono::milliseconds(50);

uint64_t Hash(uint64_t seed, std::string_view text) {  // FNV-1a
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return (seed ^ 0xff) * 0x100000001b3;
}

// Hashes the parts of the spec that must be equal at both ends of a link.
uint64_t SpecHash(const GroupSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325 + spec.generation * 31 + static_cast<uint64_t>(spec.backend);
  for (const GroupMember& m : spec.members) {
    hash = Hash(hash, m.task);
    hash = Hash(hash, m.host_id);
    hash = hash * 31 + m.num_replicas;
  }
  return hash;
}

class Formation {
 public:
  Formation(const GroupSpec& spec, DataListener& listener, const std::function<bool()>& aborted)
      : spec_(spec),
        listener_(listener),
        aborted_(aborted),
        deadline_(Clock::now() + spec.formation_timeout),
        size_(static_cast<int>(spec.members.size())),
        hash_(SpecHash(spec)) {
    for (const GroupMember& m : spec_.members) labels_.push_back(m.task);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Run() {
    MUSTER_RETURN_IF_ERROR(Check());
    CommunicatorOptions options{
        .rank = spec_.rank, .size = size_, .timeout = spec_.operation_timeout};
    options.labels = labels_;
    options.recorder = spec_.recorder;
    if (size_ == 1) return MakeCommunicator(MakeAloneEngine(), std::move(options));
    options.progress_thread = spec_.progress_thread;
    MUSTER_RETURN_IF_ERROR(Choose());
    absl::StatusOr<std::unique_ptr<Engine>> engine = MakeEngine();
    // The peers receive the error and forward it.
    if (!engine.ok()) {
      MakeLinks()->Close(engine.status());
      return engine.status();
    }
    LogDebug(
        "generation {:#x} communicates over {}: this rank has connections to {} of the {} other "
        "ranks",
        spec_.generation, (*engine)->Describe(), topology_.peers[spec_.rank].size(), size_ - 1);
    return MakeCommunicator(*std::move(engine), std::move(options));
  }

 private:
  using Wanted = std::pair<int, Channel>;  // A connection to a rank.

  absl::Status Check() const {
    if (spec_.rank < 0 || spec_.rank >= size_) {
      return ConfigurationError(
          fmt::format("Rank {} is not in a group of {} members.", spec_.rank, size_));
    }
    if (spec_.ticket.empty() || spec_.ticket.size() > transport::kMaxTicketBytes) {
      return ConfigurationError("The generation's ticket must have 1 to 32 bytes.");
    }
    return absl::OkStatus();
  }

  absl::Status Choose() {
    std::vector<std::string> host_of;
    for (const GroupMember& m : spec_.members) host_of.push_back(m.host_id);
    std::vector<std::vector<int>> hosts = RanksByHost(host_of);
    if (spec_.backend == Backend::kSharedMemory && hosts.size() > 1) {
      return ConfigurationError(fmt::format(
          "collective.backend is shared_memory, but the members are on {} hosts.", hosts.size()));
    }
    const bool alone_everywhere = static_cast<int>(hosts.size()) == size_;
    Algorithm algorithm = Algorithm::kHierarchical;
    if (spec_.backend == Backend::kTcp || alone_everywhere) {
      algorithm = Algorithm::kRing;
    } else if (hosts.size() == 1) {
      algorithm = Algorithm::kSharedMemory;
    }
    topology_ = MakeTopology(std::move(hosts), algorithm);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine() {
    const auto admission = listener_.Admit(spec_.generation, spec_.rank, spec_.ticket);
    MUSTER_RETURN_IF_ERROR(OpenLinks(*admission));
    std::shared_ptr<Segment> segment;
    if (topology_.algorithm != Algorithm::kRing) {
      MUSTER_ASSIGN_OR_RETURN(const bool shared, ShareMemory(&segment));
      if (!shared) {
        // Without shared memory, the same ring carries the data.
        topology_ = MakeTopology(topology_.hosts, Algorithm::kRing);
        const std::vector<int>& peers = topology_.peers[spec_.rank];
        std::erase_if(connections_, [&](const auto& connection) {
          return !std::binary_search(peers.begin(), peers.end(), connection.first.first);
        });
        MUSTER_RETURN_IF_ERROR(OpenLinks(*admission));
      }
    }
    switch (topology_.algorithm) {
      case Algorithm::kRing:
        break;
      case Algorithm::kSharedMemory:
        return MakeSharedMemoryEngine(MakeLinks(), std::move(segment), spec_.spin);
      case Algorithm::kHierarchical:
        return MakeHierarchicalEngine(MakeLinks(), std::move(segment), spec_.spin);
    }
    return MakeTcpEngine(MakeLinks(), spec_.spin);
  }

  std::unique_ptr<Links> MakeLinks() {
    return std::make_unique<Links>(
        Links::Options{spec_.rank, topology_, labels_, spec_.link_timeout},
        std::exchange(connections_, {}));
  }

  std::string LinkText(int peer) const {
    return fmt::format("{} (to {})", LinkName(labels_, spec_.rank, peer),
                       spec_.members[peer].data_address);
  }

  // Opens and tests the links of the topology that are not open yet.
  absl::Status OpenLinks(Admission& admission) {
    std::vector<Wanted> wanted;
    for (const int peer : topology_.peers[spec_.rank]) {
      wanted.emplace_back(peer, Channel::kNotices);
      if (topology_.data_needs_links()) wanted.emplace_back(peer, Channel::kData);
    }
    std::erase_if(wanted, [&](const Wanted& w) { return connections_.contains(w); });
    MUSTER_RETURN_IF_ERROR(Connect(wanted, admission));
    return TestConnections(wanted);
  }

  // The higher rank opens the connection to the lower one.
  absl::Status Connect(const std::vector<Wanted>& wanted, Admission& admission) {
    std::map<Wanted, std::unique_ptr<Dialing>> dialing;
    for (const Wanted& w : wanted) {
      if (w.first > spec_.rank) continue;
      dialing[w] = listener_.Dial(
          {spec_.members[w.first].data_address,
           {spec_.generation, spec_.rank, w.first, static_cast<uint32_t>(w.second), spec_.ticket},
           deadline_,
           labels_[w.first]});
    }
    for (uint64_t seen = 0;; listener_.WaitForChange(&seen, kLook)) {
      std::set<int> missing;
      for (const Wanted& w : wanted) {
        if (connections_.contains(w)) continue;
        std::unique_ptr<DataConnection> connection;
        if (w.first > spec_.rank) {
          connection = Take(admission, w);
        } else if (auto result = dialing[w]->TakeResult()) {
          if (!result->ok()) return Annotate(result->status(), LinkText(w.first) + ": ");
          connection = *std::move(*result);
        }
        if (connection == nullptr) {
          missing.insert(w.first);
          continue;
        }
        connections_[w] = std::move(connection);
        // Sent at once, so the peer's error does not name this link if only another one fails.
        MUSTER_RETURN_IF_ERROR(Send(w, FrameKind::kProbe, Probe{hash_, spec_.rank, size_}));
      }
      if (missing.empty()) return absl::OkStatus();
      if (aborted_ && aborted_()) return Superseded("The formation was given up.");
      if (Clock::now() >= deadline_) {
        std::string links;
        for (const int peer : missing) links += (links.empty() ? "" : ", ") + LinkText(peer);
        return DeadlinePassed(fmt::format("{}: not connected within {:.3g} s", links,
                                          Seconds(spec_.formation_timeout)));
      }
    }
  }

  // Takes an incoming connection. With security, its certificate must name the member of that rank.
  std::unique_ptr<DataConnection> Take(Admission& admission, const Wanted& w) const {
    for (;;) {
      auto connection = admission.Take(w.first, static_cast<uint32_t>(w.second));
      if (connection == nullptr) return nullptr;
      const transport::ConnectionInfo& info = connection->info();
      if (info.peer.empty() || info.peer == labels_[w.first]) return connection;
      LogWarning("closed a data connection from {}: {} claimed to be {}", info.remote, info.peer,
                 RankName(labels_, w.first));
    }
  }

  struct Probe {
    uint64_t hash;
    int32_t rank, size;
  };

  // Reads the probe from each connection. Both sides send one, so a link works in both directions.
  absl::Status TestConnections(const std::vector<Wanted>& wanted) {
    for (const Wanted& w : wanted) {
      MUSTER_ASSIGN_OR_RETURN(const FrameHeader theirs, Receive(w, deadline_));
      Probe other;
      std::memcpy(&other, theirs.body, sizeof other);
      if (!IsOf(theirs, FrameKind::kProbe) || other.rank != w.first || other.hash != hash_ ||
          other.size != size_) {
        return ConfigurationError(fmt::format(
            "{}: the two sides do not agree on the members of generation {:#x} or the backend.",
            LinkText(w.first), spec_.generation));
      }
    }
    return absl::OkStatus();
  }

  static bool IsOf(const FrameHeader& header, FrameKind kind) {
    return header.magic == FrameHeader::kMagic && header.kind == static_cast<uint16_t>(kind);
  }

  template <typename Body>
  absl::Status Send(const Wanted& to, FrameKind kind, const Body& body) {
    FrameHeader mine;
    mine.kind = static_cast<uint16_t>(kind);
    std::memcpy(mine.body, &body, sizeof body);
    return Transfer(to, std::as_bytes(std::span(&mine, 1)), {}, deadline_);
  }

  // Returns the header of the next frame of `from`. If the frame is kFailure, returns its reason
  // as the error.
  absl::StatusOr<FrameHeader> Receive(const Wanted& from, MonotonicTime deadline) {
    FrameHeader theirs;
    MUSTER_RETURN_IF_ERROR(
        Transfer(from, {}, std::as_writable_bytes(std::span(&theirs, 1)), deadline));
    if (!IsOf(theirs, FrameKind::kFailure)) return theirs;
    uint32_t code = 0;
    std::memcpy(&code, theirs.body, sizeof code);
    std::string text(std::min<size_t>(theirs.payload_bytes, kMaxFailureText), '\0');
    MUSTER_RETURN_IF_ERROR(Transfer(from, {}, std::as_writable_bytes(std::span(text)), deadline));
    return FailureFromNotice(code, text, RankName(labels_, from.first));
  }

  absl::Status Transfer(const Wanted& with, std::span<const std::byte> send,
                        std::span<std::byte> receive, MonotonicTime deadline) {
    while (!send.empty() || !receive.empty()) {
      // Waits in short slices, and checks for an abort between them. If a slice ends in the middle
      // of a block, the next slice continues there.
      DataConnection& connection = *connections_.at(with);
      transport::Interest interest{&connection, !receive.empty(), !send.empty()};
      const MonotonicTime slice = std::min(deadline, Clock::now() + kLook);
      const auto ready = transport::WaitReady({&interest, 1}, slice, never_);
      if (ready == transport::WaitResult::kReady) {
        const iovec part = send.empty() ? iovec{receive.data(), receive.size()}
                                        : iovec{const_cast<std::byte*>(send.data()), send.size()};
        const absl::StatusOr<size_t> n =
            send.empty() ? connection.TryRead({&part, 1}) : connection.TryWrite({&part, 1});
        if (!n.ok()) return Annotate(n.status(), LinkText(with.first) + ": ");
        if (send.empty()) {
          receive = receive.subspan(*n);
        } else {
          send = send.subspan(*n);
        }
        continue;
      }
      if (aborted_ && aborted_()) return Superseded("The formation was given up.");
      if (Clock::now() >= deadline) {
        return DeadlinePassed(fmt::format("{}: connected, but silent for {:.3g} s",
                                          LinkText(with.first), Seconds(spec_.formation_timeout)));
      }
    }
    return absl::OkStatus();
  }

  // Creates or opens the segment of this host. `*shared` is null if this rank is alone on its host.
  // Returns the same result on all ranks: false if any rank failed.
  absl::StatusOr<bool> ShareMemory(std::shared_ptr<Segment>* shared) {
    size_t host = 0;
    while (std::find(topology_.hosts[host].begin(), topology_.hosts[host].end(), spec_.rank) ==
           topology_.hosts[host].end()) {
      ++host;
    }
    const int local = static_cast<int>(topology_.hosts[host].size());
    const bool leads = topology_.hosts[host][0] == spec_.rank;
    const std::string name =
        fmt::format("muster-{:x}-{:016x}-{}", spec_.generation, Hash(hash_, spec_.ticket), host);
    const SegmentLayout layout = HostLayout(local);
    absl::StatusOr<std::shared_ptr<Segment>> segment = std::shared_ptr<Segment>();
    if (leads && local > 1) segment = Segment::Create(name, layout);
    MUSTER_ASSIGN_OR_RETURN(const bool all, AllAgree([&](bool so_far) {
                              // The first rank of this host has voted before this one. It has
                              // created the segment or voted no.
                              if (!leads && so_far) segment = Segment::Open(name, layout);
                              return segment.ok();
                            }));
    if (segment.ok() && *segment != nullptr) (*segment)->Unlink();
    if (all) {
      *shared = *std::move(segment);
      if (*shared != nullptr) (*shared)->set_traffic(spec_.shared_memory);
      return true;
    }
    LogWarning(
        "there is no shared memory{}: the members of one host communicate over TCP, which is "
        "slower",
        segment.ok() ? " (another member has none)"
                     : fmt::format(" ({})", Message(segment.status())));
    return false;
  }

  // Returns whether every rank votes yes. In the first round around the ring, `say` receives
  // whether all votes so far are yes, and returns this rank's vote. The second round carries the
  // result.
  absl::StatusOr<bool> AllAgree(const std::function<bool(bool so_far)>& say) {
    const std::vector<int>& ring = topology_.ring;
    const auto me = std::find(ring.begin(), ring.end(), spec_.rank);
    const bool first = me == ring.begin(), last = me + 1 == ring.end();
    const Wanted left{first ? ring.back() : *(me - 1), Channel::kNotices};
    const Wanted right{last ? ring.front() : *(me + 1), Channel::kNotices};
    // Members with failed links must report first, then the member after a silent one. The other
    // members wait for the silent one too, and their errors would name their neighbours.
    const auto place = static_cast<double>(me - ring.begin()) / size_;
    const auto hear = [&](double share_of_grace) -> absl::StatusOr<bool> {
      const auto grace = std::chrono::duration_cast<Duration>(spec_.vote_grace * share_of_grace);
      MUSTER_ASSIGN_OR_RETURN(const FrameHeader theirs, Receive(left, deadline_ + grace));
      if (!IsOf(theirs, FrameKind::kVote)) {
        return PeerLost(fmt::format("{} sent bytes that are no frame.", LinkText(left.first)));
      }
      return theirs.body[0] == 1;
    };
    bool all = true;
    if (!first) {
      MUSTER_ASSIGN_OR_RETURN(all, hear(place / 2));
    }
    all = say(all) && all;
    MUSTER_RETURN_IF_ERROR(Send(right, FrameKind::kVote, all));
    MUSTER_ASSIGN_OR_RETURN(all, hear(0.5 + place / 2));
    if (!last) MUSTER_RETURN_IF_ERROR(Send(right, FrameKind::kVote, all));
    return all;
  }

  const GroupSpec& spec_;
  DataListener& listener_;
  const std::function<bool()>& aborted_;
  const MonotonicTime deadline_;
  const int size_;
  const uint64_t hash_;
  std::vector<std::string> labels_;
  Topology topology_;
  Links::Connections connections_;
  const transport::AbortSignal never_;
};

}  // namespace
absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted) {
  return Formation(spec, listener, aborted).Run();
}

}  // namespace muster::collective
