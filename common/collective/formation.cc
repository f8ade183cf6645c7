#include "common/collective/formation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/collective/engine.h"
#include "common/collective/host_team.h"
#include "common/collective/mesh.h"
#include "common/collective/ring.h"
#include "common/transport/data_listener.h"

namespace muster {
namespace collective {
namespace {

using transport::Admission;
using transport::DataConnection;
using transport::DataListener;
using transport::Dialing;
using transport::FrameHeader;

constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr uint16_t kProbe = 100;

uint64_t Hash(uint64_t seed, std::string_view text) {  // FNV-1a
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return (seed ^ 0xff) * 0x100000001b3;
}

// What both ends of a link must have in common.
uint64_t SpecHash(const GroupSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325 + spec.generation * 31 + static_cast<uint64_t>(spec.backend);
  for (const GroupMember& m : spec.members) {
    hash = Hash(hash, m.task);
    hash = Hash(hash, m.host_id);
    hash = hash * 31 + m.num_replicas;
  }
  return hash;
}

// Passes an abort on to waits that know only a signal.
class AbortWatch {
 public:
  AbortWatch(const std::function<bool()>& aborted, transport::AbortSignal* signal) {
    if (!aborted) return;
    thread_ = std::thread([this, &aborted, signal] {
      while (!over_.WaitFor(kLook)) {
        if (aborted()) return signal->Set();
      }
    });
  }
  ~AbortWatch() {
    over_.Notify();
    if (thread_.joinable()) thread_.join();
  }

 private:
  Notification over_;
  std::thread thread_;
};

class Formation {
 public:
  Formation(const GroupSpec& spec, DataListener& listener, const std::function<bool()>& aborted)
      : spec_(spec),
        listener_(listener),
        aborted_(aborted),
        deadline_(Clock::now() + spec.formation_timeout),
        size_(static_cast<int>(spec.members.size())) {}

  absl::StatusOr<std::unique_ptr<Communicator>> Run() {
    MUSTER_RETURN_IF_ERROR(Check());
    FrontOptions options{.rank = spec_.rank, .size = size_, .timeout = spec_.operation_timeout};
    for (const GroupMember& m : spec_.members) options.labels.push_back(m.task);
    options.recorder = spec_.recorder;
    if (size_ == 1) return MakeCommunicator(MakeAloneEngine(), std::move(options));
    options.progress_thread = spec_.progress_thread;
    MUSTER_RETURN_IF_ERROR(Connect());
    MUSTER_RETURN_IF_ERROR(TestLinks());
    auto mesh =
        std::make_unique<Mesh>(Mesh::Options{spec_.rank, size_, options.labels, spec_.link_timeout},
                               std::move(connections_));
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, MakeEngine(std::move(mesh)));
    LogDebug("Generation {:#x} communicates over {}.", spec_.generation, engine->Describe());
    return MakeCommunicator(std::move(engine), std::move(options));
  }

 private:
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

  std::string LinkName(int peer) const {
    std::vector<std::string> labels;
    for (const GroupMember& m : spec_.members) labels.push_back(m.task);
    return fmt::format("{} (to {})", collective::LinkName(labels, spec_.rank, peer),
                       spec_.members[peer].data_address);
  }

  // The higher rank opens the connection to the lower one.
  absl::Status Connect() {
    const auto admission = listener_.Admit(spec_.generation, spec_.rank, spec_.ticket);
    std::vector<std::unique_ptr<Dialing>> dialing(spec_.rank);
    for (int peer = 0; peer < spec_.rank; ++peer) {
      dialing[peer] = listener_.Dial({spec_.members[peer].data_address,
                                      {spec_.generation, spec_.rank, peer, 0, spec_.ticket},
                                      deadline_});
    }
    connections_.resize(size_);
    for (uint64_t seen = 0;; listener_.WaitForChange(&seen, kLook)) {
      std::string missing;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == spec_.rank || connections_[peer] != nullptr) continue;
        if (peer > spec_.rank) {
          connections_[peer] = admission->Take(peer, 0);
        } else if (auto result = dialing[peer]->TakeResult()) {
          if (!result->ok()) {
            return Annotate(result->status(), LinkName(peer) + ": ");
          }
          connections_[peer] = *std::move(*result);
        }
        if (connections_[peer] != nullptr) {
          // At once: a link that works is not to be named because another one does not.
          MUSTER_RETURN_IF_ERROR(SendProbe(peer));
        } else {
          missing += (missing.empty() ? "" : ", ") + LinkName(peer);
        }
      }
      if (missing.empty()) return absl::OkStatus();
      if (aborted_ && aborted_()) return Superseded("The formation was given up.");
      if (Clock::now() >= deadline_) {
        return DeadlinePassed(fmt::format("{}: not connected within {:.3g} s", missing,
                                          Seconds(spec_.formation_timeout)));
      }
    }
  }

  struct Probe {
    uint64_t hash;
    int32_t rank, size;
  };

  absl::Status SendProbe(int peer) {
    FrameHeader mine;
    mine.kind = kProbe;
    const Probe body{SpecHash(spec_), spec_.rank, size_};
    std::memcpy(mine.body, &body, sizeof body);
    return Transfer(peer, std::as_bytes(std::span(&mine, 1)), {});
  }

  // Both sides have sent a probe: what is formed is known to work in both directions.
  absl::Status TestLinks() {
    const uint64_t hash = SpecHash(spec_);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == spec_.rank) continue;
      FrameHeader theirs;
      MUSTER_RETURN_IF_ERROR(Transfer(peer, {}, std::as_writable_bytes(std::span(&theirs, 1))));
      Probe other;
      std::memcpy(&other, theirs.body, sizeof other);
      if (theirs.magic != FrameHeader::kMagic || theirs.kind != kProbe || other.rank != peer ||
          other.hash != hash || other.size != size_) {
        return ConfigurationError(fmt::format(
            "{}: the two sides do not agree on the members of generation {:#x} or the backend.",
            LinkName(peer), spec_.generation));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Transfer(int peer, std::span<const std::byte> send, std::span<std::byte> receive) {
    for (;;) {
      // In slices, so that an abort is seen. A slice never tears the small block: what has
      // arrived is looked at again from where it stopped.
      const transport::AbortSignal never;
      DataConnection& connection = *connections_[peer];
      transport::Interest interest{&connection, !receive.empty(), !send.empty()};
      const MonotonicTime slice = std::min(deadline_, Clock::now() + kLook);
      const auto ready = transport::WaitReady({&interest, 1}, slice, never);
      if (ready == transport::WaitResult::kReady) {
        const iovec part = send.empty() ? iovec{receive.data(), receive.size()}
                                        : iovec{const_cast<std::byte*>(send.data()), send.size()};
        const absl::StatusOr<size_t> n =
            send.empty() ? connection.TryRead({&part, 1}) : connection.TryWrite({&part, 1});
        if (!n.ok()) return Annotate(n.status(), LinkName(peer) + ": ");
        if (send.empty()) {
          receive = receive.subspan(*n);
        } else {
          send = send.subspan(*n);
        }
        if (send.empty() && receive.empty()) return absl::OkStatus();
      }
      if (aborted_ && aborted_()) return Superseded("The formation was given up.");
      if (Clock::now() >= deadline_) {
        return DeadlinePassed(fmt::format("{}: connected, but silent for {:.3g} s", LinkName(peer),
                                          Seconds(spec_.formation_timeout)));
      }
    }
  }

  // Ranks by host, hosts in the order of their first rank.
  std::vector<std::vector<int>> Hosts() const {
    std::vector<std::vector<int>> hosts;
    std::map<std::string, size_t> index;
    for (int r = 0; r < size_; ++r) {
      const auto [at, added] = index.emplace(spec_.members[r].host_id, hosts.size());
      if (added) hosts.emplace_back();
      hosts[at->second].push_back(r);
    }
    return hosts;
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(std::unique_ptr<Mesh> mesh) {
    const std::vector<std::vector<int>> hosts = Hosts();
    const bool alone_everywhere = static_cast<int>(hosts.size()) == size_;
    if (spec_.backend == Backend::kSharedMemory && hosts.size() > 1) {
      return ConfigurationError(fmt::format(
          "collective.backend is shared_memory, but the members are on {} hosts.", hosts.size()));
    }
    if (spec_.backend == Backend::kTcp || alone_everywhere) {
      return MakeTcpEngine(std::move(mesh), spec_.spin);
    }
    MUSTER_ASSIGN_OR_RETURN(auto share, ShareMemory(*mesh, hosts));
    if (!share) return MakeTcpEngine(std::move(mesh), spec_.spin);
    if (hosts.size() == 1) {
      return MakeSharedMemoryEngine(std::move(mesh), std::move(*share), spec_.spin);
    }
    return MakeHierarchicalEngine(std::move(mesh), std::move(*share), hosts, spec_.spin);
  }

  // A segment for each host with several ranks (null on others); no value when any rank could not
  // have one, which all learn alike.
  absl::StatusOr<std::optional<std::shared_ptr<Segment>>> ShareMemory(
      Mesh& mesh, const std::vector<std::vector<int>>& hosts) {
    size_t host = 0;
    while (std::find(hosts[host].begin(), hosts[host].end(), spec_.rank) == hosts[host].end()) {
      ++host;
    }
    const int local = static_cast<int>(hosts[host].size());
    const bool leads = hosts[host][0] == spec_.rank;
    const std::string name = fmt::format("muster-{:x}-{:016x}-{}", spec_.generation,
                                         Hash(SpecHash(spec_), spec_.ticket), host);
    const SegmentLayout layout = HostLayout(local);
    absl::StatusOr<std::shared_ptr<Segment>> segment = std::shared_ptr<Segment>();
    if (leads && local > 1) segment = Segment::Create(name, layout);
    MUSTER_ASSIGN_OR_RETURN(bool all, AllSay(mesh, segment.ok()));
    if (all) {
      if (!leads) segment = Segment::Open(name, layout);
      MUSTER_ASSIGN_OR_RETURN(all, AllSay(mesh, segment.ok()));
    }
    if (segment.ok() && *segment != nullptr) (*segment)->Unlink();
    if (all) return std::optional(*std::move(segment));
    LogWarning("No shared memory{}: the members of one host talk over TCP, which is slower.",
               segment.ok() ? " (another member has none)"
                            : fmt::format(" ({})", Message(segment.status())));
    return std::optional<std::shared_ptr<Segment>>();
  }

  // True when every rank says yes.
  absl::StatusOr<bool> AllSay(Mesh& mesh, bool yes) {
    const AbortWatch watch(aborted_, &mesh.abort());
    Ring ring(&mesh, false);
    std::vector<int> order(size_);
    std::iota(order.begin(), order.end(), 0);
    int64_t no = yes ? 0 : 1;
    const Plan plan = MakeInPlacePlan({&no, 1, DataType::kInt64}, size_, size_,
                                      {.op = ReduceOp::kMax}, true, true);
    Signature vote{.count = 1, .verb = Verb::kAllReduce, .type = DataType::kInt64};
    const absl::Status status = ring.Run(order, plan, vote, deadline_);
    if (absl::IsAborted(status)) return Superseded("The formation was given up.");
    MUSTER_RETURN_IF_ERROR(status);
    return no == 0;
  }

  const GroupSpec& spec_;
  DataListener& listener_;
  const std::function<bool()>& aborted_;
  const MonotonicTime deadline_;
  const int size_;
  std::vector<std::unique_ptr<DataConnection>> connections_;
};

}  // namespace
}  // namespace collective

absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted) {
  return collective::Formation(spec, listener, aborted).Run();
}

}  // namespace muster
