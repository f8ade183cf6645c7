// An evaluator without LibTorch: real checkpoints, a real chief's end, evaluation by hand.
#include "evaluator/follower.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "tests/unit/base/becomes.h"
#include "tests/unit/evaluation/harness.h"

namespace muster::evaluator {
namespace {

using evaluation::Folder;
using evaluation::TestChief;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Becomes;

checkpoint::Snapshot SnapshotOf(int64_t step) {
  auto values = std::make_shared<std::vector<float>>(1000, static_cast<float>(step));
  checkpoint::Tensor tensor;
  tensor.name = "w";
  tensor.shape = {1000};
  tensor.data = reinterpret_cast<const char*>(values->data());
  checkpoint::Snapshot snapshot;
  snapshot.state.step = step;
  snapshot.state.run_id = "run-a";
  snapshot.state.job = Json::object();
  snapshot.model.tensors = {tensor};
  snapshot.model.memory = values;
  return snapshot;
}

// Finds under the path `from` what lies under `to`, if anything: another host.
class ElsewhereFileSystem : public checkpoint::FileSystem {
 public:
  ElsewhereFileSystem(std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)) {}
  absl::StatusOr<std::unique_ptr<checkpoint::WritableFile>> Create(
      const std::string& path) override {
    return real_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<checkpoint::ReadableFile>> Open(const std::string& path) override {
    return real_.Open(path.starts_with(from_) ? to_ + path.substr(from_.size()) : path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_.List(path);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override { return real_.Exists(path); }
  absl::Status MakeDirectory(const std::string& path) override { return real_.MakeDirectory(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return real_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return real_.Remove(path); }
  absl::Status SyncDirectory(const std::string& path) override { return real_.SyncDirectory(path); }

 private:
  checkpoint::FileSystem& real_ = checkpoint::PosixFileSystem();
  const std::string from_, to_;
};

// Where this process puts temporary files, and no other one: others fetch too.
class TemporaryFolder {
 public:
  TemporaryFolder() { setenv("TMPDIR", folder_.path().c_str(), 1); }
  ~TemporaryFolder() { usual_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", usual_.c_str(), 1); }
  const std::string& path() const { return folder_.path(); }

 private:
  static std::string Usual() {
    const char* value = std::getenv("TMPDIR");
    return value == nullptr ? "" : value;
  }
  const Folder folder_;
  const std::string usual_ = Usual();
};

class Following : public ::testing::Test {
 protected:
  Following() {
    checkpoint::StoreOptions options;
    options.directory = folder_.path() + "/checkpoints";
    options.token = "test";
    options.keep = 100;
    auto store = checkpoint::Store::Open(checkpoint::PosixFileSystem(), options, -1);
    EXPECT_TRUE(store.ok()) << Message(store.status());
    store_ = *std::move(store);
  }

  std::string Save(int64_t step) {
    const auto path = store_->Write(SnapshotOf(step));
    EXPECT_TRUE(path.ok()) << Message(path.status());
    return *path;
  }
  void Announce(TestChief& chief, int64_t step, bool final = false) {
    chief.service().Announce(step, checkpoint::CheckpointName(step), Save(step), final);
  }

  // The "loss" is the checkpoint's first weight, so that a test sees which one was read.
  FollowerOptions Options(const TestChief& chief) {
    FollowerOptions options;
    options.link = chief.link_options();
    options.files = &checkpoint::PosixFileSystem();
    options.prepare = [this](const std::string&) {
      ++prepared_;
      return absl::OkStatus();
    };
    options.evaluate = [this](const checkpoint::Snapshot& snapshot,
                              const FollowerOptions::Hooks& hooks) -> absl::StatusOr<Evaluated> {
      ++evaluated_;
      while (blocked_ && !hooks.cancelled()) std::this_thread::sleep_for(milliseconds(5));
      if (hooks.cancelled()) ++cancelled_;
      const checkpoint::Tensor* w = snapshot.model.Find("w");
      if (w == nullptr) return ConfigurationError("w is missing");
      return Evaluated{{{"loss", *reinterpret_cast<const float*>(w->data)}}, 1000, 0.1};
    };
    return options;
  }
  void Start(FollowerOptions options) {
    auto follower = Follower::Make(std::move(options));
    ASSERT_TRUE(follower.ok());
    follower_ = *std::move(follower);
    result_ = std::async(std::launch::async, [this] { return follower_->Run(); });
  }
  absl::Status Result() {
    EXPECT_EQ(result_.wait_for(evaluation::kPatience), std::future_status::ready);
    return result_.get();
  }
  static std::vector<int64_t> Steps(const TestChief& chief) {
    std::vector<int64_t> steps;
    for (const chief::EvaluationResult& result : chief.results()) {
      steps.push_back(result.step);
      EXPECT_EQ(result.metrics.at("loss"), result.step) << "another checkpoint than announced";
    }
    return steps;
  }

  Folder folder_;
  std::unique_ptr<checkpoint::Store> store_;
  std::atomic<int> prepared_ = 0, evaluated_ = 0, cancelled_ = 0;
  std::atomic<bool> blocked_ = false;
  std::unique_ptr<Follower> follower_;
  std::future<absl::Status> result_;
};

TEST_F(Following, ALateComerToAFinishedRunEndsWithIt) {
  TestChief chief;
  chief.StopServer();
  FollowerOptions options = Options(chief);
  options.link.look = milliseconds(200);
  int looks = 0;
  // The second time: a chief that is about to save the end has not ended yet.
  options.link.finished = [&] { return ++looks < 2 ? "" : "the run is finished"; };
  const auto follower = Follower::Make(options);
  ASSERT_TRUE(follower.ok());
  const absl::Status end = (*follower)->Run();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(looks, 2);
}

TEST_F(Following, AChiefThatOnlyCannotBeReachedIsWaitedFor) {
  TestChief chief;
  chief.StopServer();
  FollowerOptions options = Options(chief);
  options.link.look = milliseconds(100);
  options.link.patience = seconds(1);
  options.link.finished = [] { return ""; };
  const auto follower = Follower::Make(options);
  ASSERT_TRUE(follower.ok());
  EXPECT_EQ(ExitCodeOf((*follower)->Run()), ExitCode::kRetryable);
}

TEST_F(Following, EvaluatesToTheEndAndEndsWithTheJob) {
  TestChief chief;
  Announce(chief, 10);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return Steps(chief).size() == 1; }));
  Announce(chief, 20, true);
  chief.service().AwaitFinal();
  EXPECT_THAT(Steps(chief), testing::ElementsAre(10, 20));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
  EXPECT_EQ(prepared_, 1);
}

TEST_F(Following, ComesBeforeTheChief) {
  auto chief = std::make_unique<TestChief>();
  chief->StopServer();
  Start(Options(*chief));
  std::this_thread::sleep_for(milliseconds(300));  // into its tries; how many does not matter
  chief->Restart();
  Announce(*chief, 10, true);
  EXPECT_TRUE(Becomes([&] { return Steps(*chief).size() == 1; }));
  chief->service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, FallsBehindAndTakesTheNewestAndTheFinalOne) {
  TestChief chief;
  blocked_ = true;
  Announce(chief, 10);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 1; }));
  for (int64_t step : {20, 30, 40}) Announce(chief, step);
  Announce(chief, 50, true);
  blocked_ = false;
  chief.service().AwaitFinal();
  EXPECT_THAT(Steps(chief), testing::ElementsAre(10, 50));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, KeepsTheCheckpointInHandPinned) {
  chief::EvaluationRules rules;
  rules.heartbeat = seconds(1);
  TestChief chief(rules);
  blocked_ = true;
  Announce(chief, 10);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 1; }));
  std::this_thread::sleep_for(seconds(2));  // longer than silence may be: heartbeats keep it
  EXPECT_THAT(chief.pinned(), testing::ElementsAre(10));
  blocked_ = false;
  EXPECT_TRUE(Becomes([&] { return chief.pinned().empty(); }));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, FetchesWhatItCannotRead) {
  const TemporaryFolder temporary;
  TestChief chief;
  ElsewhereFileSystem elsewhere(folder_.path(), folder_.path() + "/nowhere");
  FollowerOptions options = Options(chief);
  options.files = &elsewhere;
  Start(std::move(options));
  Announce(chief, 10, true);
  chief.service().AwaitFinal();
  EXPECT_TRUE(Becomes([&] { return Steps(chief).size() == 1; }));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path())) << "the private folder is gone";
}

TEST_F(Following, FetchesWhereAnotherCheckpointHasThatPath) {
  TestChief chief;
  // A checkpoint of the same step, with other weights.
  const Folder other;
  checkpoint::StoreOptions store;
  store.directory = other.path() + "/checkpoints";
  store.token = "other";
  auto opened = checkpoint::Store::Open(checkpoint::PosixFileSystem(), store, -1);
  ASSERT_TRUE(opened.ok());
  checkpoint::Snapshot wrong = SnapshotOf(99);
  wrong.state.step = 10;
  ASSERT_TRUE((*opened)->Write(wrong).ok());
  ElsewhereFileSystem elsewhere(folder_.path(), other.path());
  FollowerOptions options = Options(chief);
  options.files = &elsewhere;
  Start(std::move(options));
  Announce(chief, 10, true);
  ASSERT_TRUE(Becomes([&] { return Steps(chief).size() == 1; }));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, LeavesADamagedCheckpointOut) {
  TestChief chief;
  const std::string path = Save(10);
  std::filesystem::resize_file(path + "/model.safetensors", 100);
  chief.service().Announce(10, checkpoint::CheckpointName(10), path, false);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return prepared_ == 1; }));
  Announce(chief, 20, true);
  chief.service().AwaitFinal();
  EXPECT_THAT(Steps(chief), testing::ElementsAre(20));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, WithNothingToEvaluateItStaysTillTheEndAndNobodyWaits) {
  TestChief chief;
  FollowerOptions options = Options(chief);
  options.prepare = [this](const std::string&) {
    ++prepared_;
    return absl::NotFoundError("the program has no validation data");
  };
  Announce(chief, 10);
  Start(std::move(options));
  ASSERT_TRUE(Becomes([&] { return prepared_ == 1; }));
  Announce(chief, 20, true);
  const MonotonicTime start = Clock::now();
  chief.service().AwaitFinal();
  EXPECT_LT(Clock::now() - start, evaluation::kPatience);
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
  EXPECT_EQ(evaluated_, 0);
  EXPECT_THAT(chief.results(), IsEmpty());
}

TEST_F(Following, ItsOwnFailureIs138AndTheChiefGoesOn) {
  for (const bool in_prepare : {true, false}) {
    TestChief chief;
    FollowerOptions options = Options(chief);
    const auto fail = [] { return DataError("the images are damaged"); };
    if (in_prepare) {
      options.prepare = [=](const std::string&) { return fail(); };
    } else {
      options.evaluate = [=](const checkpoint::Snapshot&, const FollowerOptions::Hooks&) {
        return absl::StatusOr<Evaluated>(fail());
      };
    }
    Announce(chief, in_prepare ? 10 : 11, true);
    Start(std::move(options));
    const absl::Status result = Result();
    EXPECT_EQ(ExitCodeOf(result), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(result)), HasSubstr("ROOT CAUSE: evaluator 0 on host"));
    EXPECT_THAT(std::string(Message(result)), HasSubstr("the images are damaged"));
    chief.service().AwaitFinal();
    EXPECT_THAT(chief.results(), IsEmpty());
    EXPECT_THAT(chief.pinned(), IsEmpty());
  }
}

TEST_F(Following, GoesOnWithARestartedChief) {
  TestChief chief;
  Announce(chief, 10);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return Steps(chief).size() == 1; }));
  blocked_ = true;
  Announce(chief, 20);
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 2; }));
  chief.Restart();
  Announce(chief, 20);  // what it was restored from
  Announce(chief, 30, true);
  blocked_ = false;
  chief.service().AwaitFinal();
  EXPECT_TRUE(Becomes([&] { return !Steps(chief).empty() && Steps(chief).back() == 30; }));
  EXPECT_EQ(prepared_, 1) << "the same job: its datasets are kept";
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, EvaluatesAgainWhatARestartedChiefDidNotKnowYet) {
  TestChief chief;
  blocked_ = true;
  Announce(chief, 10);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 1; }));
  chief.Restart();
  // Its heartbeat arrives before the chief has read the checkpoint that it continues from.
  ASSERT_TRUE(Becomes([&] { return cancelled_ == 1; }));
  blocked_ = false;
  Announce(chief, 10);
  EXPECT_TRUE(Becomes([&] { return Steps(chief) == std::vector<int64_t>{10}; }));
  chief.service().End(Verdict());
  EXPECT_TRUE(Result().ok());
}

TEST_F(Following, StopsAtOnceAndTellsTheChief) {
  TestChief chief;
  blocked_ = true;
  Announce(chief, 10, true);
  Start(Options(chief));
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 1; }));
  const MonotonicTime start = Clock::now();
  follower_->Stop();
  EXPECT_EQ(ExitCodeOf(Result()), ExitCode::kPreempted);
  chief.service().AwaitFinal();  // it left: nobody to wait for
  EXPECT_LT(Clock::now() - start, evaluation::kPatience);
  EXPECT_THAT(chief.pinned(), IsEmpty());
}

TEST_F(Following, AFailedJobEndsItInTheMiddle) {
  TestChief chief;
  blocked_ = true;
  Announce(chief, 10);
  std::promise<absl::Status> ending;
  FollowerOptions options = Options(chief);
  options.on_ending = [&](const absl::Status& status) { ending.set_value(status); };
  Start(std::move(options));
  ASSERT_TRUE(Becomes([&] { return evaluated_ == 1; }));
  Verdict verdict;
  verdict.code = ExitCode::kProgramFailed;
  verdict.task = "worker:0";
  verdict.message = "no more luck";
  chief.service().End(verdict);
  const absl::Status result = Result();
  EXPECT_EQ(ExitCodeOf(result), ExitCode::kProgramFailed);
  EXPECT_EQ(Message(result), "stopped because of worker 0: no more luck");
  EXPECT_EQ(ExitCodeOf(ending.get_future().get()), ExitCode::kProgramFailed);
}

TEST_F(Following, AChiefThatDoesNotComeBackIs138) {
  TestChief chief;
  FollowerOptions options = Options(chief);
  options.link.patience = milliseconds(500);
  Start(std::move(options));
  ASSERT_TRUE(Becomes([&] { return prepared_ == 1; }));
  chief.StopServer();
  const absl::Status result = Result();
  EXPECT_EQ(ExitCodeOf(result), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(result)), HasSubstr("cannot reach the chief chief:0 (127.0.0.1"));
}

}  // namespace
}  // namespace muster::evaluator
