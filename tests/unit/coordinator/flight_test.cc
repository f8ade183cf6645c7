// Tests that flight records reach the chief's model_dir after every kind of loss.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "chief/flight_service.h"
#include "common/flight/flight_record.h"
#include "common/session/flight_uploader.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using membership::Member;
using membership::MemberOptions;
using muster::testing::LoggedLines;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kFirst = (uint64_t{1} << 32) | 1;

class Flight : public ::testing::Test {
 protected:
  Flight() : service_(FlightService::Make(flight_options())) {}
  ~Flight() override {
    cluster_.StopChief();  // before the service
    std::filesystem::remove_all(aside_);
  }

  FlightServiceOptions flight_options() {
    FlightServiceOptions options;
    options.model_dir = "/model";
    options.cluster_digest = "digest-a";
    options.run_id = [] { return "run-a"; };
    for (int rank = 0; rank < 3; ++rank) options.tasks.insert(cluster_.TaskOf(rank));
    options.newest = [this] { return newest_.load(); };
    options.files = &files_;
    return options;
  }
  CoordinatorOptions coordinator_options() {
    CoordinatorOptions options = cluster_.coordinator_options();
    options.decision.rejoin = std::chrono::seconds(20);
    options.services = {service_->service()};
    options.on_newest = [this](uint64_t generation) {
      if (follow_) newest_ = generation;
    };
    return options;
  }
  MemberOptions member_options(int rank) {
    MemberOptions options = cluster_.member_options(rank);
    options.timeouts.rejoin = std::chrono::seconds(20);
    options.flight_folder = aside_;
    return options;
  }
  FlightUploaderOptions uploader_options() {
    FlightUploaderOptions options;
    options.channel = [channel = *rpc::MakeChannel(cluster_.address(), {})] { return channel; };
    options.cluster_digest = "digest-a";
    options.fallback_folder = aside_;
    options.deadline = kLimit;
    return options;
  }
  // Trains until the generation is lost, then finishes in the next one.
  Crew::Body LoseOne() {
    return [this](Member& member, Generation& generation) {
      training_.DecrementCount();
      (void)WaitInBarrier(member, generation);
      generation.replicas.clear();
      auto next = member.NextGeneration(12);
      return next.ok() ? FinishAt7(member, *next) : next.status();
    };
  }

  std::vector<std::string> Names(const std::string& folder) {
    service_->Drain(kLimit);
    auto names = files_.List(folder);
    if (!names.ok()) return {};
    std::sort(names->begin(), names->end());
    return *names;
  }
  FlightRecord Read(const std::string& path) {
    const auto text = checkpoint::ReadFile(files_, path);
    EXPECT_TRUE(text.ok()) << path;
    auto record = ParseFlightRecord(text.value_or(""), path);
    EXPECT_TRUE(record.ok()) << Message(record.status());
    return record.ok() ? *record : FlightRecord();
  }
  std::vector<std::string> Aside() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(aside_))
      names.push_back(entry.path().filename());
    return names;
  }
  static std::string MakeFolder() {
    std::string name = ::testing::TempDir() + "muster-flight-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }

  TestCluster cluster_{2};
  const std::string aside_ = MakeFolder();
  checkpoint::MemoryFileSystem files_;
  std::unique_ptr<FlightService> service_;
  bool follow_ = true;  // the coordinator
  std::atomic<uint64_t> newest_ = 0;
  absl::BlockingCounter training_{2};
};

TEST_F(Flight, SurvivorsOfALossKeepTheirRecordsAndGoOn) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(member_options(rank), LoseOne());
  auto victim = Member::Make(member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(2).Close();
  victim.reset();
  crew.Add(member_options(2), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_THAT(Names("/model/flight"), ElementsAre("0001-000001"));
  EXPECT_THAT(Names("/model/flight/0001-000001"), ElementsAre("chief-0.json", "worker-0.json"));
  const FlightRecord record = Read("/model/flight/0001-000001/worker-0.json");
  EXPECT_EQ(record.header.task, "worker:0");
  EXPECT_EQ(record.header.host, "host1");
  EXPECT_EQ(record.header.run_id, "run-a");
  EXPECT_EQ(record.header.generation, kFirst);
  EXPECT_THAT(record.header.members, ElementsAre("chief:0", "worker:0", "worker:1"));
  EXPECT_THAT(record.header.reason, HasSubstr("worker 1"));
  std::vector<FlightKind> kinds;
  for (const RecordedEvent& event : record.events) kinds.push_back(event.kind);
  for (const FlightKind kind : {FlightKind::kChiefFound, FlightKind::kForming, FlightKind::kFormed,
                                FlightKind::kStarted, FlightKind::kPhase, FlightKind::kAborted})
    EXPECT_THAT(kinds, Contains(kind));
  EXPECT_THAT(Aside(), IsEmpty());
}

TEST_F(Flight, AVerdictIsRecordedByAllThatHearIt) {
  CoordinatorOptions options = coordinator_options();
  options.decision.rejoin = std::chrono::milliseconds(300);
  options.decision.failure_ack_timeout = kLimit;
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(member_options(rank), LoseOne());
  auto victim = Member::Make(member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(2).Close();
  victim.reset();
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kRetryable);
  // A member that has acknowledged the verdict has sent its record.
  ASSERT_THAT(Names("/model/flight/0001-000001"), ElementsAre("chief-0.json", "worker-0.json"));
  for (const char* name : {"chief-0.json", "worker-0.json"}) {
    const FlightRecord record = Read(std::string("/model/flight/0001-000001/") + name);
    EXPECT_THAT(record.events, Contains(Field(&RecordedEvent::kind, FlightKind::kVerdict)));
    EXPECT_THAT(record.header.reason, HasSubstr("no process took its place"));
  }
}

TEST_F(Flight, TheSuccessorOfALostChiefGetsTheRecords) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  for (int rank : {1, 2}) crew.Add(member_options(rank), LoseOne());
  {
    auto chief = Member::Make(member_options(0));
    ASSERT_TRUE(chief->NextGeneration(0).ok());
    training_.Wait();
    cluster_.StopChief();
  }
  service_ = FlightService::Make(flight_options());
  CoordinatorOptions successor = coordinator_options();
  successor.admission.term = 2;
  ASSERT_TRUE(cluster_.StartChief(std::move(successor)).ok());
  crew.Add(member_options(0), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_THAT(Names("/model/flight/0001-000001"), ElementsAre("worker-0.json", "worker-1.json"));
  const FlightRecord record = Read("/model/flight/0001-000001/worker-1.json");
  // By its silence, or by its successor.
  EXPECT_THAT(record.header.reason, AnyOf(HasSubstr("lost the chief"), HasSubstr("was lost")));
}

TEST_F(Flight, WhoNeverFindsTheChiefAgainPutsItsRecordAside) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  {
    std::vector<std::unique_ptr<Member>> members;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      MemberOptions options = member_options(rank);
      options.timeouts.rejoin = std::chrono::milliseconds(500);
      members.push_back(Member::Make(std::move(options)));
    }
    for (auto& member : members)
      threads.emplace_back([&member] { EXPECT_TRUE(member->NextGeneration(0).ok()); });
    for (std::thread& thread : threads) thread.join();
    cluster_.StopChief();
    for (auto& member : members) EXPECT_FALSE(member->NextGeneration(0).ok());
  }
  EXPECT_THAT(Aside(), UnorderedElementsAre("muster-run-a-0001-000001-chief-0.json",
                                            "muster-run-a-0001-000001-worker-0.json",
                                            "muster-run-a-0001-000001-worker-1.json"));
  std::ifstream file(aside_ + "/muster-run-a-0001-000001-worker-1.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto record = ParseFlightRecord(text, "worker-1.json");
  ASSERT_TRUE(record.ok()) << Message(record.status());
  EXPECT_THAT(record->header.reason, HasSubstr("could not reach the chief"));
}

TEST_F(Flight, WithoutAModelDirNothingIsWritten) {
  FlightServiceOptions none = flight_options();
  none.model_dir.clear();
  service_ = FlightService::Make(std::move(none));
  CoordinatorOptions options = coordinator_options();
  options.decision.rejoin = std::chrono::milliseconds(500);
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  const MonotonicTime start = Clock::now();
  {
    Crew crew;
    for (int rank : {0, 1}) {
      crew.Add(member_options(rank), [this](Member& m, Generation& generation) {
        training_.DecrementCount();
        return WaitForTheEnd(m, generation);
      });
    }
    auto victim = Member::Make(member_options(2));
    ASSERT_TRUE(victim->NextGeneration(0).ok());
    training_.Wait();
    cluster_.data_port(2).Close();
    victim.reset();
    crew.Join();
  }
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kRetryable);
  EXPECT_LT(Clock::now() - start, kLimit);
  EXPECT_THAT(Names("/model"), IsEmpty());
  EXPECT_THAT(Aside(), IsEmpty());
}

TEST_F(Flight, OnlyTheNewestGenerationsStay) {
  FlightServiceOptions options = flight_options();
  options.keep_generations = 3;
  service_ = FlightService::Make(std::move(options));
  follow_ = false;
  newest_ = kFirst + 5;
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  FlightUploader bringer(uploader_options());
  FlightRecorder recorder;
  // A chief was killed while it wrote this file.
  const std::string left = "/model/flight/0001-000000/chief-0.json.part";
  ASSERT_TRUE(checkpoint::MakeDirectories(files_, "/model/flight/0001-000000").ok());
  ASSERT_TRUE(files_.Create(left).ok());
  for (uint64_t n = 1; n <= 6; ++n) {
    FlightHeader header;
    header.task = "worker:0";
    header.run_id = "run-a";
    header.generation = (uint64_t{1} << 32) | n;
    bringer.Enqueue(header, recorder, false);
    bringer.WaitIdle(kLimit);
  }
  EXPECT_THAT(Names("/model/flight"), ElementsAre("0001-000004", "0001-000005", "0001-000006"));
  EXPECT_FALSE(*files_.Exists(left));
  // Strangers' are not kept, and not put aside either: the chief was there. Nor is what a member
  // makes up.
  struct Claim {
    const char *task, *run;
    uint64_t generation;
  };
  newest_ = kFirst + 8;
  for (const auto& [task, run, generation] :
       {Claim{"worker:7", "run-a", kFirst + 8}, Claim{"worker:0", "run-b", kFirst + 8},
        Claim{"worker:0", "run-a", kFirst + 9}, Claim{"worker:0", "run-a", uint64_t{2} << 32}}) {
    FlightHeader header;
    header.task = task;
    header.run_id = run;
    header.generation = generation;
    bringer.Enqueue(header, recorder, true);
    bringer.WaitIdle(kLimit);
  }
  EXPECT_THAT(Names("/model/flight"), ElementsAre("0001-000004", "0001-000005", "0001-000006"));
  EXPECT_THAT(Aside(), IsEmpty());
}

TEST_F(Flight, NobodyWaitsForASlowDiskAtTheEnd) {
  std::atomic<int> writes = 0;
  absl::Notification written;
  FlightServiceOptions options = flight_options();
  options.fence = [&] {
    ++writes;
    written.WaitForNotification();
    return absl::OkStatus();
  };
  service_ = FlightService::Make(std::move(options));
  follow_ = false;
  newest_ = kFirst + 7;
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  {
    FlightUploader bringer(uploader_options());
    const FlightRecorder recorder;
    for (uint64_t n = 1; n <= 8; ++n) {
      FlightHeader header;
      header.task = "worker:0";
      header.run_id = "run-a";
      header.generation = (uint64_t{1} << 32) | n;
      bringer.Enqueue(header, recorder, false);
      bringer.WaitIdle(kLimit);
      // The disk blocks the first record, and the others wait in the queue.
      const MonotonicTime end = Clock::now() + kLimit;
      while (writes == 0 && Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  cluster_.StopChief();
  const LoggedLines lines;
  std::thread disk([&] {
    EXPECT_TRUE(lines.Await("flight records: the disk is too slow", kLimit));
    written.Notify();
  });
  service_ = FlightService::Make(flight_options());
  disk.join();
  EXPECT_EQ(writes, 1);
}

// Nobody notices but the log.
TEST_F(Flight, AFullDiskCostsTheRecordOnly) {
  ASSERT_TRUE(files_.MakeDirectory("/model").ok());
  files_.SetCapacity(10);
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(member_options(rank), LoseOne());
  auto victim = Member::Make(member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(2).Close();
  victim.reset();
  crew.Add(member_options(2), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_THAT(Names("/model/flight/0001-000001"), IsEmpty());
}

}  // namespace
}  // namespace muster::chief::testing
