// How groups come to be, fail to, and leave nothing behind.
#include "common/collective/group/formation.h"

#include <dirent.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "common/collective/group/links.h"
#include "common/collective/group/topology.h"
#include "tests/unit/collective/group_fixture.h"

namespace muster::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeGroup;
using testing::MakeListener;
using testing::MakeListeners;
using testing::MakeSpec;
using testing::OnEachRank;
using testing::TestGroup;

using Formed = std::vector<absl::StatusOr<std::unique_ptr<Communicator>>>;

Formed FormEach(const std::vector<std::unique_ptr<transport::DataListener>>& listeners,
                const std::function<GroupSpec(int rank)>& spec, std::vector<int> ranks,
                const std::function<bool()>& aborted = nullptr) {
  Formed formed;
  for (size_t i = 0; i < listeners.size(); ++i) formed.emplace_back(absl::UnknownError("absent"));
  OnEachRank(static_cast<int>(listeners.size()), [&](int rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
    GroupSpec mine = spec(rank);
    mine.rank = rank;
    formed[rank] = FormGroup(mine, *listeners[rank], aborted);
  });
  return formed;
}

TEST(Formation, ARefusedLinkIsNamed) {
  const auto listeners = MakeListeners(2);
  GroupSpec spec = MakeSpec(listeners);
  const std::string gone = MakeListener()->address();  // closed again at once
  spec.members[0].data_address = gone;
  spec.formation_timeout = std::chrono::seconds(5);
  const Formed formed = FormEach(listeners, [&](int) { return spec; }, {1});
  EXPECT_TRUE(absl::IsUnavailable(formed[1].status())) << formed[1].status();
  EXPECT_THAT(std::string(Message(formed[1].status())),
              AllOf(HasSubstr("worker 0 <-> worker 1 (to " + gone + ")"), HasSubstr("refused")));
}

TEST(Formation, TheLinksToAMemberThatDoesNotComeAreNamed) {
  const auto listeners = MakeListeners(4);
  GroupSpec spec = MakeSpec(listeners);
  spec.formation_timeout = std::chrono::seconds(5);  // enough for the links of the others
  const Formed formed = FormEach(listeners, [&](int) { return spec; }, {0, 1, 3});
  for (const int rank : {0, 1, 3}) {
    const std::string message(Message(formed[rank].status()));
    EXPECT_EQ(ExitCodeOf(formed[rank].status()), ExitCode::kRetryable);
    // Worker 0 is not linked with it, and hears of it from worker 3.
    EXPECT_THAT(message, HasSubstr((rank == 1 ? "worker 1 <-> worker 2 (to "
                                              : "worker 2 <-> worker 3 (to ") +
                                   spec.members[2].data_address + ")"));
    EXPECT_THAT(message, Not(HasSubstr("worker 0 <-> worker 1")));
  }
}

// Loses a member's messages about shared memory, after it has tested its links.
class MuteInVotes : public transport::ByteStream {
 public:
  explicit MuteInVotes(std::unique_ptr<transport::ByteStream> stream)
      : stream_(std::move(stream)) {}
  absl::StatusOr<size_t> Read(std::span<const iovec> into) override { return stream_->Read(into); }
  absl::StatusOr<size_t> Write(std::span<const iovec> from) override {
    transport::FrameHeader header;
    if (from[0].iov_len == sizeof header) {
      std::memcpy(&header, from[0].iov_base, sizeof header);
      if (header.kind == static_cast<uint16_t>(FrameKind::kVote)) return sizeof header;
    }
    return stream_->Write(from);
  }
  short PollEvents(bool read, bool write) const override {
    return stream_->PollEvents(read, write);
  }
  int fd() const override { return stream_->fd(); }
  void Shutdown() override { stream_->Shutdown(); }

 private:
  const std::unique_ptr<transport::ByteStream> stream_;
};

TEST(Formation, AMemberThatFallsSilentWhenAllAreConnectedIsNamedByAll) {
  auto listeners = MakeListeners(5);
  auto mute = transport::DataListener::Create(
      {.bind_address = "127.0.0.1", .wrap = [](std::unique_ptr<transport::ByteStream> stream) {
         return std::make_unique<MuteInVotes>(std::move(stream));
       }});
  ASSERT_TRUE(mute.ok()) << mute.status();
  listeners[2] = *std::move(mute);
  GroupSpec spec = MakeSpec(listeners);
  spec.formation_timeout = std::chrono::seconds(5);
  spec.vote_grace = std::chrono::seconds(10);  // a second from member to member
  for (const auto& result : FormEach(listeners, [&](int) { return spec; }, {0, 1, 2, 3, 4})) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(result.status())) << result.status();
    EXPECT_THAT(std::string(Message(result.status())),
                AllOf(HasSubstr("worker 2 <-> worker 3 (to "), HasSubstr("connected, but silent")));
  }
}

TEST(Formation, AnAbortEndsItAtOnce) {
  const auto listeners = MakeListeners(2);
  std::atomic<bool> abort{false};
  std::thread order([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    abort = true;
  });
  const MonotonicTime start = Clock::now();
  const Formed formed = FormEach(
      listeners, [&](int) { return MakeSpec(listeners); }, {0}, [&] { return !!abort; });
  order.join();
  EXPECT_TRUE(absl::IsAborted(formed[0].status())) << formed[0].status();
  EXPECT_LT(Clock::now() - start, std::chrono::minutes(1)) << "not by the deadline of 2 min";
}

TEST(Formation, MembersThatDisagreeLearnWhichLink) {
  const auto listeners = MakeListeners(2);
  auto spec = [&](int rank) {
    GroupSpec mine = MakeSpec(listeners);
    if (rank == 1) mine.members[1].num_replicas = 2;
    return mine;
  };
  const Formed formed = FormEach(listeners, spec, {0, 1});
  for (const auto& result : formed) {
    // One of the two may see the other's closed connection first.
    EXPECT_THAT(std::string(Message(result.status())), HasSubstr("<-> worker "));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(formed[0].status()) ||
              absl::IsInvalidArgument(formed[1].status()));
}

TEST(Formation, AWrongTicketIsRefused) {
  const auto listeners = MakeListeners(2);
  auto spec = [&](int rank) {
    GroupSpec mine = MakeSpec(listeners);
    mine.formation_timeout = std::chrono::seconds(3);
    if (rank == 1) mine.ticket = "another";
    return mine;
  };
  const Formed formed = FormEach(listeners, spec, {0, 1});
  EXPECT_THAT(std::string(Message(formed[1].status())), HasSubstr("another ticket"));
  EXPECT_FALSE(formed[0].ok());
}

TEST(Formation, SharedMemoryOfSeveralHostsIsAConfigurationError) {
  const auto listeners = MakeListeners(2);
  GroupSpec spec = MakeSpec(listeners);
  spec.members[1].host_id = "elsewhere";
  spec.backend = Backend::kSharedMemory;
  for (const auto& result : FormEach(listeners, [&](int) { return spec; }, {0, 1})) {
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kConfiguration) << result.status();
  }
}

TEST(Formation, TheBackendFollowsTheHosts) {
  EXPECT_EQ(MakeGroup("shared_memory", 3)[0].Describe(), "shared memory, 3 ranks");
  EXPECT_EQ(MakeGroup("hierarchical", 2)[1].Describe(), "TCP ring, 2 ranks");
  EXPECT_EQ(MakeGroup("hierarchical", 4)[3].Describe(),
            "4 ranks on 2 hosts: shared memory, 2 TCP rings between hosts");
  EXPECT_EQ(MakeGroup("tcp", 3)[2].Describe(), "TCP ring, 3 ranks");
  EXPECT_EQ(MakeGroup("tcp", 1)[0].Describe(), "one rank");
}

TEST(Formation, WithoutRoomForSharedMemoryAllFallBackToTcp) {
  // A file of that size cannot be made: what a /dev/shm that is too small comes to.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  TestGroup one_host = MakeGroup("shared_memory", 5), two_hosts = MakeGroup("hierarchical", 5);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  for (TestGroup* group : {&one_host, &two_hosts}) {
    OnEachRank(5, [&](int rank) {
      EXPECT_EQ((*group)[rank].Describe(), "TCP ring, 5 ranks");
      EXPECT_TRUE((*group)[rank].Barrier()->Wait().ok());
      float one = 1;
      EXPECT_TRUE(
          (*group)[rank].AllReduce({&one, 1, DataType::kFloat32}, ReduceOp::kSum)->Wait().ok());
      EXPECT_EQ(one, 5);
    });
  }
}

// Connections by rank, as its listener sees them come and go.
struct Counted {
  std::vector<std::unique_ptr<transport::DataListener>> listeners;
  std::vector<std::unique_ptr<std::atomic<int>>> opened;

  explicit Counted(int size) {
    for (int rank = 0; rank < size; ++rank) {
      opened.push_back(std::make_unique<std::atomic<int>>(0));
      auto listener = transport::DataListener::Create(
          {.bind_address = "127.0.0.1",
           .wrap = [count = opened.back().get()](std::unique_ptr<transport::ByteStream> stream) {
             ++*count;
             return stream;
           }});
      EXPECT_TRUE(listener.ok()) << listener.status();
      listeners.push_back(*std::move(listener));
    }
  }
  int all() const {  // each has two ends
    int sum = 0;
    for (const auto& count : opened) sum += *count;
    return sum / 2;
  }
};

class FormationOfMany : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, FormationOfMany, ::testing::ValuesIn(testing::LayoutNames()),
                         [](const auto& info) { return info.param; });

// Two for each pair that data goes between, one where shared memory carries it, none elsewhere.
TEST_P(FormationOfMany, OpensTheLinksOfItsTopologyAndNoOthers) {
  for (const Backend backend : {Backend::kAuto, Backend::kTcp}) {
    // A process that is all of the members maps each host's segment, 64 GiB of addresses for each
    // member, as often as the host has members; sanitizers leave it few TiB.
    const bool by_tcp = backend == Backend::kTcp || GetParam() == "alone";
    const int size = by_tcp ? 64 : GetParam() == "pairs" ? 16 : 6;
    const std::vector<std::string> hosts = testing::HostsOf(GetParam(), size);
    const Counted counted(size);
    GroupSpec spec = MakeSpec(counted.listeners);
    spec.backend = backend;
    for (int i = 0; i < size; ++i) spec.members[i].host_id = hosts[i];
    const auto formed = testing::Form(spec, counted.listeners);
    ASSERT_NE(formed[0], nullptr);
    EXPECT_EQ(by_tcp, formed[0]->Describe() == fmt::format("TCP ring, {} ranks", size));
    const bool by_memory = backend == Backend::kAuto && GetParam() == "one_host";
    const Topology topology = MakeTopology(RanksByHost(hosts), by_memory ? Algorithm::kSharedMemory
                                                               : by_tcp  ? Algorithm::kRing
                                                                        : Algorithm::kHierarchical);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(*counted.opened[rank],
                static_cast<int>(topology.peers[rank].size()) * (by_memory ? 1 : 2))
          << formed[rank]->Describe() << ", rank " << rank;
    }
    if (by_memory || by_tcp) {
      EXPECT_EQ(counted.all(), by_memory ? size : 2 * size);
    }
    EXPECT_LE(counted.all(), 4 * size) << "a full mesh has " << size * (size - 1) / 2;
    OnEachRank(size, [&](int rank) { EXPECT_TRUE(formed[rank]->Barrier()->Wait().ok()); });
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_LE(*counted.opened[rank], 8) << "an operation opens none";
    }
  }
}

std::vector<float> Ones(int64_t count) { return std::vector<float>(count, 1.f); }

absl::Status Sum(Communicator& communicator, std::vector<float>& data) {
  return communicator
      .AllReduce({data.data(), static_cast<int64_t>(data.size()), DataType::kFloat32},
                 ReduceOp::kSum)
      ->Wait();
}

class FormedGenerations : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, FormedGenerations,
                         ::testing::Values("tcp", "shared_memory", "hierarchical", "replicas"),
                         [](const auto& info) { return info.param; });

// A rank that was stopped at the end of its generation wakes up and continues in it.
TEST_P(FormedGenerations, LateBytesOfAnOldGenerationHarmNobody) {
  TestGroup old = MakeGroup(GetParam(), 3, {.generation = 1});
  OnEachRank(3, [&](int rank) {
    auto data = Ones(100'000);
    EXPECT_TRUE(Sum(old[rank], data).ok());
  });
  for (const int rank : {0, 1}) {
    old[rank].Abort(Superseded("generation 1 is over"));
    old.ranks[rank].reset();
  }
  TestGroup next = MakeGroup(GetParam(), 3, {.generation = 2});
  std::thread sleeper([&] {
    auto data = Ones(100'000);
    EXPECT_FALSE(Sum(old[2], data).ok());
    EXPECT_FALSE(Sum(old[2], data).ok());
  });
  OnEachRank(3, [&](int rank) {
    for (int i = 0; i < 20; ++i) {
      auto data = Ones(100'000);
      ASSERT_TRUE(Sum(next[rank], data).ok());
      ASSERT_TRUE(std::all_of(data.begin(), data.end(), [](float x) { return x == 3.f; }));
    }
  });
  sleeper.join();
}

int Entries(const std::string& folder, const std::string& prefix) {
  int count = 0;
  DIR* open = opendir(folder.c_str());
  while (const dirent* entry = readdir(open)) {
    count += std::string(entry->d_name).starts_with(prefix) && entry->d_name[0] != '.';
  }
  closedir(open);
  return count;
}

// The kernel may list a thread for a while after it was joined.
int EntriesOnceAtMost(int most, const std::string& folder) {
  const MonotonicTime until = Clock::now() + std::chrono::minutes(1);
  while (Entries(folder, "") > most && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Entries(folder, "");
}

int SegmentsMapped() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("muster-") != line.npos;
  return count;
}

TEST_P(FormedGenerations, LeaveNothingBehind) {
  // Names of this process: other tests make and remove segments meanwhile.
  const uint64_t mine = uint64_t(getpid()) << 32;
  const std::string name = fmt::format("muster-{:x}", getpid());
  { MakeGroup(GetParam(), 3, {.generation = mine}); }
  const int descriptors = Entries("/proc/self/fd", ""), threads = Entries("/proc/self/task", "");
  for (uint64_t generation = mine + 1; generation <= mine + 25; ++generation) {
    TestGroup group = MakeGroup(GetParam(), 3, {.generation = generation});
    std::shared_ptr<void> memory = group[0].AllocateReducible(1 << 20);
    OnEachRank(3, [&](int rank) {
      auto data = Ones(50'000);
      EXPECT_TRUE(Sum(group[rank], data).ok());
    });
    if (generation % 2 == 0) group[1].Abort(PeerLost("lost"));
  }
  EXPECT_EQ(Entries("/proc/self/fd", ""), descriptors);
  EXPECT_LE(EntriesOnceAtMost(threads, "/proc/self/task"), threads);
  EXPECT_EQ(Entries("/dev/shm", name), 0);
  EXPECT_EQ(SegmentsMapped(), 0);
}

TEST(ReducibleMemory, OutlivesItsCommunicator) {
  TestGroup group = MakeGroup("shared_memory", 2);
  std::shared_ptr<void> memory = group[0].AllocateReducible(1000);
  ASSERT_NE(memory, nullptr);
  group.ranks.clear();
  static_cast<char*>(memory.get())[999] = 1;
  memory.reset();
  EXPECT_EQ(SegmentsMapped(), 0);
}

}  // namespace
}  // namespace muster::collective
