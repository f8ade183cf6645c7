#include "chief/model_dir/owner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "muster/json.h"

namespace muster::chief {
namespace {

using ::testing::HasSubstr;

class OwnerTest : public ::testing::Test {
 protected:
  OwnerTest() {
    std::string name = std::filesystem::temp_directory_path() / "muster-owner-XXXXXX";
    dir_ = mkdtemp(name.data());
    options_.model_dir = dir_ + "/run";
    options_.refresh = std::chrono::milliseconds(50);
    // An owner that lives is seen at its next beat, however long a beat takes; else nobody waits.
    options_.watch = std::chrono::hours(1);
  }
  ~OwnerTest() override { std::filesystem::remove_all(dir_); }

  Json ReadFile() const { return *ReadJsonFile(options_.model_dir + "/owner.json"); }
  void WriteFile(const Json& json) const {
    const std::string path = options_.model_dir + "/owner.json";
    std::ofstream(path + ".test") << json;
    std::filesystem::rename(path + ".test", path);
  }

  std::string dir_;
  OwnerOptions options_;
};

TEST_F(OwnerTest, TheRunStaysAndTheEpochGrows) {
  std::string run_id;
  {
    auto owner = Owner::Take(options_);
    ASSERT_TRUE(owner.ok()) << Message(owner.status());
    run_id = (*owner)->run_id();
    EXPECT_EQ((*owner)->term(), 1u);
    ASSERT_TRUE((*owner)->RecordRun(run_id, 7).ok());
    EXPECT_EQ((*owner)->term(), 7u);
    EXPECT_TRUE((*owner)->Check().ok());
  }
  auto next = Owner::Take(options_);  // it was left: nothing to watch
  ASSERT_TRUE(next.ok()) << Message(next.status());
  EXPECT_EQ((*next)->run_id(), run_id);
  EXPECT_EQ((*next)->term(), 8u);
  EXPECT_EQ((*next)->previous_run_id(), run_id);
  next->reset();
  options_.run = RunChoice::kNew;
  auto fresh = Owner::Take(options_);
  ASSERT_TRUE(fresh.ok());
  EXPECT_NE((*fresh)->run_id(), run_id);
  EXPECT_EQ((*fresh)->previous_run_id(), run_id);
  EXPECT_EQ((*fresh)->term(), 9u);
}

TEST_F(OwnerTest, ALiveOwnerIsNotReplaced) {
  options_.identity = "chief:0 at a:1";
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  options_.identity = "chief:0 at b:1";
  options_.wait = std::chrono::hours(1);
  const auto second = Owner::Take(options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(second.status())),
              HasSubstr("belongs to a running job (run " + (*owner)->run_id()));
  EXPECT_TRUE((*owner)->Check().ok());
}

// A pod that saves and its successor, two starts of a requeued job.
TEST_F(OwnerTest, AnAdoptedRunIsWrittenBeforeItIsUsed) {
  options_.refresh = std::chrono::hours(1);
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  EXPECT_TRUE((*owner)->RecordRun("run-of-its-members", 4).ok());
  EXPECT_EQ(ReadFile()["run_id"], "run-of-its-members");
  EXPECT_EQ(ReadFile()["epoch"], 4);
  EXPECT_EQ((*owner)->run_id(), "run-of-its-members");
  Json record = ReadFile();
  record["token"] = "another";
  WriteFile(record);
  EXPECT_EQ(ExitCodeOf((*owner)->RecordRun("run-c", 9)), ExitCode::kRetryable);
  EXPECT_EQ((*owner)->run_id(), "run-of-its-members") << "what is not on the disk is not used";
  EXPECT_EQ((*owner)->term(), 4u);
}

// A chief without a record takes the directory and dies before its members, which hold the state of
// a run, have reported it. Its successor has no record of a run either.
TEST_F(OwnerTest, ARunThatHasNotBegunIsNone) {
  std::string run_id;
  for (uint32_t term : {1u, 2u}) {
    auto owner = Owner::Take(options_);
    ASSERT_TRUE(owner.ok()) << Message(owner.status());
    if (term == 1) run_id = (*owner)->run_id();
    EXPECT_EQ((*owner)->run_id(), run_id);
    EXPECT_EQ((*owner)->term(), term);
    EXPECT_EQ((*owner)->previous_run_id(), "");
    EXPECT_FALSE((*owner)->starts_new_run());
    if (term == 2) {
      ASSERT_TRUE((*owner)->RecordRun("run-of-its-members", 9).ok());
    }
  }
  auto next = Owner::Take(options_);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->run_id(), "run-of-its-members");
  EXPECT_EQ((*next)->previous_run_id(), "run-of-its-members");
  EXPECT_EQ((*next)->term(), 10u);
}

// restore: never, and a chief that dies before its run has begun.
TEST_F(OwnerTest, WhoTakesItsPlaceBeginsTheNewRunToo) {
  struct Seen {
    std::string run_id, before;
    bool starts_new_run = false;
    bool operator==(const Seen&) const = default;
  };
  const auto start = [this](RunChoice run, bool begins) -> Seen {
    options_.run = run;
    auto owner = Owner::Take(options_);
    EXPECT_TRUE(owner.ok()) << Message(owner.status());
    if (!owner.ok()) return {};
    if (begins) {
      EXPECT_TRUE((*owner)->RecordRun((*owner)->run_id(), (*owner)->term()).ok());
    }
    return {(*owner)->run_id(), (*owner)->previous_run_id(), (*owner)->starts_new_run()};
  };
  const Seen old = start(RunChoice::kContinue, true);
  const Seen first = start(RunChoice::kNew, false);
  EXPECT_NE(first.run_id, old.run_id);
  EXPECT_EQ(first, (Seen{first.run_id, old.run_id, true}));
  EXPECT_EQ(start(RunChoice::kResume, false), first);
  // Another start continues with the existing run.
  EXPECT_EQ(start(RunChoice::kContinue, false), (Seen{old.run_id, old.run_id, false}));
  const Seen second = start(RunChoice::kNew, true);
  EXPECT_EQ(second, (Seen{second.run_id, old.run_id, true}));
  EXPECT_EQ(start(RunChoice::kResume, false), (Seen{second.run_id, second.run_id, false}));
}

// One after the last would be the first again, and members obey no chief of before.
TEST_F(OwnerTest, AnEpochThatNoRunReachesIsRefused) {
  { ASSERT_TRUE(Owner::Take(options_).ok()); }
  Json record = ReadFile();
  for (const uint64_t term : {uint64_t{2'000'000}, uint64_t{0xfffffffe}, uint64_t{0xffffffff},
                              uint64_t{1} << 32, uint64_t{5} << 40}) {
    record["epoch"] = term;
    WriteFile(record);
    const auto owner = Owner::Take(options_);
    ASSERT_FALSE(owner.ok()) << term;
    EXPECT_EQ(ExitCodeOf(owner.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(owner.status())),
                HasSubstr(fmt::format("owner.json says that {} chiefs have had this run", term)));
    EXPECT_EQ(ReadFile(), record) << "it is left as it was";
  }
  record["epoch"] = 1'999'999;
  WriteFile(record);
  const auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ((*owner)->term(), 2'000'000u);
}

TEST_F(OwnerTest, AnOwnerOfTheSameJobIsWaitedFor) {
  options_.identity = "chief:0 at a:1";
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  options_.wait = std::chrono::minutes(1);
  std::atomic<int> asked = 0;
  options_.give_up = [&asked] {
    ++asked;
    return false;
  };
  absl::StatusOr<std::unique_ptr<Owner>> next;
  std::thread waiting([&] { next = Owner::Take(options_); });
  const MonotonicTime end = Clock::now() + std::chrono::minutes(1);
  while (asked == 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(asked, 0);
  EXPECT_TRUE((*owner)->Check().ok());
  owner->reset();
  waiting.join();
  ASSERT_TRUE(next.ok()) << Message(next.status());
  EXPECT_EQ((*next)->term(), 2u);
}

TEST_F(OwnerTest, AnOwnerOfTheSameJobThatStaysIsARetryableEnd) {
  options_.identity = "chief:0 at a:1";
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  options_.wait = std::chrono::milliseconds(300);
  auto second = Owner::Take(options_);
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(second.status())),
              HasSubstr("still belongs to another process of this job (run " + (*owner)->run_id()));
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr("within 0.3 s (timeouts.join)"));
  options_.wait = std::chrono::hours(1);
  options_.give_up = [] { return true; };
  second = Owner::Take(options_);
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kPreempted);
}

TEST_F(OwnerTest, ADeadOwnerOnThisHostIsReplacedAtOnce) {
  std::filesystem::create_directories(options_.model_dir);
  const pid_t child = fork();
  if (child == 0) {
    auto owner = Owner::Take(options_);
    _exit(owner.ok() ? 0 : 1);  // no destructor: as if killed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ((*owner)->term(), 2u);
}

TEST_F(OwnerTest, OnlyOneOfManyTakesADeadOwnersPlace) {
  { ASSERT_TRUE(Owner::Take(options_).ok()); }
  Json record = ReadFile();
  record["left"] = false;
  record["process_start"] = "that of a process that has ended";
  WriteFile(record);
  std::vector<absl::StatusOr<std::unique_ptr<Owner>>> owners(6);
  std::vector<std::thread> threads;
  for (auto& owner : owners) threads.emplace_back([&] { owner = Owner::Take(options_); });
  for (auto& thread : threads) thread.join();
  int taken = 0;
  for (auto& owner : owners) {
    if (owner.ok()) {
      ++taken;
      EXPECT_EQ((*owner)->term(), 2u);
      EXPECT_TRUE((*owner)->Check().ok());
    } else {
      EXPECT_EQ(ExitCodeOf(owner.status()), ExitCode::kRetryable) << Message(owner.status());
    }
  }
  EXPECT_EQ(taken, 1);
}

TEST_F(OwnerTest, AFrozenOwnerLosesItsPlaceAndWritesNothingWhenItWakes) {
  options_.watch = std::chrono::milliseconds(600);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    options_.refresh = std::chrono::milliseconds(1);  // somewhere in a rewrite, often
    options_.on_superseded = [](const absl::Status& status) {
      _exit(status.message().find("epoch 2") != absl::string_view::npos ? 42 : 1);
    };
    auto owner = Owner::Take(options_);
    if (!owner.ok() || write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  // All of its threads have stopped: one may still have been in the rename.
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  auto owner = Owner::Take(options_);
  EXPECT_TRUE(owner.ok()) << Message(owner.status());
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_TRUE((*owner)->Check().ok());
}

TEST_F(OwnerTest, ARemovedDirectoryIsOneSentence) {
  absl::Notification superseded;
  absl::Status why;
  options_.on_superseded = [&](const absl::Status& status) {
    why = status;
    superseded.Notify();
  };
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  std::filesystem::remove_all(options_.model_dir);
  ASSERT_TRUE(superseded.WaitForNotificationWithTimeout(absl::Minutes(1)));
  EXPECT_EQ(ExitCodeOf(why), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(why)), HasSubstr("is gone: model_dir was removed"));
  owner->reset();
  EXPECT_FALSE(std::filesystem::exists(options_.model_dir));
}

TEST_F(OwnerTest, ASilentOwnerOnAnotherHostIsReplacedAfterAWatch) {
  options_.watch = std::chrono::milliseconds(600);
  { ASSERT_TRUE(Owner::Take(options_).ok()); }
  Json record = ReadFile();
  record["left"] = false;
  record["place"] = "elsewhere";
  WriteFile(record);
  const MonotonicTime start = Clock::now();
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_GE(Clock::now() - start, options_.watch);
}

TEST_F(OwnerTest, ASupersededOwnerHearsOfItAndLeavesTheFileAlone) {
  absl::Notification superseded;
  options_.on_superseded = [&superseded](const absl::Status&) { superseded.Notify(); };
  auto owner = Owner::Take(options_);
  ASSERT_TRUE(owner.ok());
  Json record = ReadFile();
  record["token"] = "another";
  record["host"] = "far";
  WriteFile(record);
  const absl::Status check = (*owner)->Check();
  EXPECT_EQ(ExitCodeOf(check), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(check)), HasSubstr("taken by another chief (host far"));
  EXPECT_TRUE(superseded.WaitForNotificationWithTimeout(absl::Minutes(1)));
  owner->reset();
  EXPECT_EQ(ReadFile()["token"], "another");
}

// The process lives, its disk takes nothing: nobody who asks it for the run waits for the disk. To
// others it gives no sign of life, and what it has begun to write reaches no file of theirs.
TEST_F(OwnerTest, ADiskThatStallsHoldsUpTheBeatsAlone) {
  absl::Notification stalled, mended, superseded;
  std::atomic<bool> stall = false;
  OwnerOptions slow = options_;
  slow.before_write = [&] {
    if (!stall || mended.HasBeenNotified()) return;
    if (!stalled.HasBeenNotified()) stalled.Notify();
    mended.WaitForNotification();
  };
  slow.on_superseded = [&](const absl::Status& why) {
    EXPECT_EQ(ExitCodeOf(why), ExitCode::kRetryable);
    superseded.Notify();
  };
  auto owner = Owner::Take(slow);
  ASSERT_TRUE(owner.ok());
  const std::string run_id = (*owner)->run_id();
  ASSERT_TRUE((*owner)->RecordRun(run_id, 1).ok());
  stall = true;
  ASSERT_TRUE(stalled.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ((*owner)->run_id(), run_id);
  EXPECT_EQ((*owner)->term(), 1u);
  EXPECT_TRUE((*owner)->Check().ok());
  options_.watch = std::chrono::milliseconds(300);
  auto next = Owner::Take(options_);
  ASSERT_TRUE(next.ok()) << Message(next.status());
  EXPECT_EQ((*next)->run_id(), run_id);
  EXPECT_EQ((*next)->term(), 2u);
  EXPECT_EQ(ExitCodeOf((*owner)->Check()), ExitCode::kRetryable) << "it publishes nothing more";
  EXPECT_FALSE(superseded.HasBeenNotified());
  mended.Notify();
  ASSERT_TRUE(superseded.WaitForNotificationWithTimeout(absl::Seconds(20)));
  owner->reset();
  EXPECT_EQ(ReadFile()["token"], (*next)->token());
  EXPECT_FALSE(ReadFile()["left"].get<bool>());
  EXPECT_TRUE((*next)->Check().ok());
}

TEST_F(OwnerTest, ADirectoryThatCannotBeWrittenIsOneSentence) {
  std::ofstream(dir_ + "/file") << "x";
  options_.model_dir = dir_ + "/file/run";
  const auto owner = Owner::Take(options_);
  EXPECT_EQ(ExitCodeOf(owner.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(owner.status())),
              HasSubstr("is not writable: Not a directory; name a directory"));
}

TEST_F(OwnerTest, OnlyOneOfTwoThatStartTogetherTakesIt) {
  std::atomic<int> taken = 0, refused = 0;
  std::vector<std::unique_ptr<Owner>> owners(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([this, i, &taken, &refused, &owners] {
      auto owner = Owner::Take(options_);
      if (owner.ok()) owners[i] = *std::move(owner);
      ++(owners[i] ? taken : refused);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace muster::chief
