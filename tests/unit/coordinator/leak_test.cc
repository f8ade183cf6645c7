// Generations that come and go in one process leave nothing behind: a coordinator, three members,
// and real communicators between them.
#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "common/base/logging.h"
#include "common/transport/listener/data_listener.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;  // a sanitizer keeps what is freed
#else
constexpr bool kMemoryIsOurs = true;
#endif
constexpr int64_t kMemoryKib = 8 << 10;
constexpr size_t kPoolThreads = 16;

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = opendir(folder.c_str());
  while (const dirent* entry = readdir(open))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(open);
  return names;
}

// gRPC's pools grow and shrink as they like: those threads have names of their own.
int OwnThreads() {
  const auto name = [](const std::string& task) {
    std::string text;
    std::getline(std::ifstream("/proc/self/task/" + task + "/comm"), text);
    return text;
  };
  const std::string own = name(std::to_string(getpid()));
  int count = 0;
  for (const std::string& task : Entries("/proc/self/task")) count += name(task) == own;
  return count;
}

// The resources that this process holds.
struct Holdings {
  size_t descriptors = Entries("/proc/self/fd").size(),
         all_threads = Entries("/proc/self/task").size();
  int threads = OwnThreads(), segments = 0;
  int64_t resident_kib = 0;

  Holdings() {
    std::ifstream maps("/proc/self/maps"), status("/proc/self/status");
    for (std::string line; std::getline(maps, line);)
      segments += line.find("/dev/shm/muster-") != line.npos;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) resident_kib = std::stoll(line.substr(6));
  }
  bool SameAs(const Holdings& other) const {
    return descriptors == other.descriptors && threads == other.threads &&
           segments == other.segments;
  }
  std::string ToString() const {
    return fmt::format("{} descriptors, {} threads ({} with gRPC's), {} segments, {} KiB",
                       descriptors, threads, all_threads, segments, resident_kib);
  }
};

class Leaks : public ::testing::Test {
 protected:
  struct Process {  // of one rank: what is lost with it
    std::unique_ptr<transport::DataListener> listener;
    std::unique_ptr<membership::Member> member;
  };
  Process Start(int rank) {
    Process process;
    auto listener = transport::DataListener::Create({.bind_address = "127.0.0.1"});
    EXPECT_TRUE(listener.ok()) << Message(listener.status());
    process.listener = *std::move(listener);
    membership::MemberOptions options = cluster_.member_options(rank);
    options.data_address = process.listener->address();
    options.form = [to = process.listener.get()](const collective::GroupSpec& spec,
                                                 const std::vector<int>& replicas_per_rank,
                                                 const std::function<bool()>& aborted)
        -> absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> {
      MUSTER_ASSIGN_OR_RETURN(auto group, collective::FormGroup(spec, *to, aborted));
      return collective::MakeReplicaCommunicators(std::move(group), replicas_per_rank,
                                                  spec.operation_timeout);
    };
    process.member = membership::Member::Make(std::move(options));
    return process;
  }

  static absl::Status Sum(collective::Communicator& communicator) {
    std::vector<float> data(50'000, 1.f);
    return communicator
        .AllReduce({data.data(), static_cast<int64_t>(data.size()), collective::DataType::kFloat32},
                   ReduceOp::kSum)
        ->Wait();
  }

  // Trains until the job ends: a loop that goes from generation to generation.
  void Survive(int rank) {
    Process process = Start(rank);
    while (true) {
      ++waiting_;
      auto generation = process.member->NextGeneration(7);
      --waiting_;
      if (!generation.ok()) return;
      absl::Status status = Sum(*generation->replicas[0]);
      if (status.ok()) status = generation->replicas[0]->Barrier()->Wait();  // until it is over
      (void)process.member->Explain(status);
    }
  }

  // One generation, that ends by a broken link or by the end of `process`, which is replaced.
  void LiveThrough(Process* process, bool dies) {
    auto generation = process->member->NextGeneration(7);
    ASSERT_TRUE(generation.ok()) << Message(generation.status());
    EXPECT_TRUE(Sum(*generation->replicas[0]).ok());
    if (dies) {
      generation->replicas.clear();
      process->member.reset();
      process->listener.reset();
      *process = Start(2);
    } else {
      const absl::Status broken = PeerLost("the link broke");
      generation->replicas[0]->Abort(broken);
      (void)process->member->Explain(broken);
    }
  }

  // Waits until background work has ended, with the holdings `wanted` if given. Returns the
  // holdings.
  Holdings AtRest(const Holdings* wanted = nullptr) {
    Holdings before, after;
    const auto rests = [&] {
      return waiting_ == 2 && before.SameAs(after) && (wanted == nullptr || after.SameAs(*wanted));
    };
    const MonotonicTime end = Clock::now() + kLimit;
    do {
      before = after;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      after = Holdings();
    } while (!rests() && Clock::now() < end);
    return after;
  }

  TestCluster cluster_{2};
  std::atomic<int> waiting_ = 0;
};

TEST_F(Leaks, FiftyGenerationsHoldWhatFiveHeld) {
  CoordinatorOptions options = cluster_.coordinator_options();
  options.decision.root_cause_wait = std::chrono::milliseconds(1);
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  std::thread first([&] { Survive(0); }), second([&] { Survive(1); });
  Process process = Start(2);
  for (int n = 1; n <= 5 && !HasFatalFailure(); ++n) LiveThrough(&process, n % 2 == 0);
  const Holdings five = AtRest();
  for (int n = 6; n <= 51 && !HasFatalFailure(); ++n) LiveThrough(&process, n % 2 == 0);
  const Holdings fifty = AtRest(&five);
  LogInfo("after 5: {}; after 50: {}", five.ToString(), fifty.ToString());
  EXPECT_TRUE(fifty.SameAs(five)) << five.ToString() << "; then " << fifty.ToString();
  EXPECT_LE(fifty.all_threads, five.all_threads + kPoolThreads) << fifty.ToString();
  if (kMemoryIsOurs) {
    EXPECT_LT(fifty.resident_kib, five.resident_kib + kMemoryKib) << fifty.ToString();
  }
  cluster_.coordinator().End({ExitCode::kPreempted, "", "", -1, Phase::kEnding, "enough"});
  first.join();
  second.join();
}

}  // namespace
}  // namespace muster::chief::testing
