// Several tasks in one process, each on a port of its own, which meet and compare.
#include "deploy/preflight/survey.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "common/cluster/cluster_spec.h"
#include "common/security/run_key.h"
#include "deploy/preflight/neighbours.h"
#include "deploy/preflight/sockets.h"

namespace muster::preflight {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr char kDigest[] = "0123456789abcdef";

// The connections of one task: takes those that begin a session, as Neighbours does.
class Door {
 public:
  Door() {
    auto socket = BindTo("127.0.0.1", SOCK_STREAM, &port_);
    EXPECT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
  }
  ~Door() { Close(); }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  void Open(Survey* survey) {
    thread_ = std::thread([this, survey] {
      while (!closed_) {
        if (!WaitFor(socket_.get(), POLLIN, Clock::now() + milliseconds(20))) continue;
        Fd caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        const std::string line = ReceiveLine(caller.get(), Clock::now() + minutes(1));
        if (PeerSession::Begins(line)) survey->Accept(std::move(caller), line);
      }
    });
  }
  void Close() {
    closed_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  int port_ = 0;
  Fd socket_;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
};

class SurveyTest : public testing::Test {
 protected:
  static constexpr int kTasks = 3;

  SurveyTest() {
    for (int i = 0; i < kTasks; ++i) {
      options_[i].session = {.self = Name(i), .cluster_digest = kDigest};
      options_[i].leader = Name(0);
      options_[i].measuring = minutes(2);
      options_[i].answer = minutes(1);
      for (int j = 0; j < kTasks; ++j) options_[i].addresses[Name(j)] = doors_[j].address();
      facts_[i] = {.task = Name(i),
                   .host = "node",
                   .host_id = fmt::format("host {}", i),
                   .job = {{"seed", 1}},
                   .versions = {{"LibTorch", "2.11.0"}},
                   .data_address = "127.0.0.1"};
      // Gives each task another host, although all are on this host.
      facts_[i].host_id = Name(i);
    }
  }

  static std::string Name(int i) { return fmt::format("worker:{}", i); }

  void Start() {
    for (int i = 0; i < kTasks; ++i) {
      surveys_[i] = Survey::Make(options_[i]);
      surveys_[i]->SetFacts(facts_[i]);
      doors_[i].Open(surveys_[i].get());
    }
  }
  // All of them compare; returns what each has found out.
  std::vector<std::vector<std::string>> Run() {
    Start();
    std::vector<std::vector<std::string>> found(kTasks);
    std::vector<std::thread> threads;
    for (int i = 0; i < kTasks; ++i)
      threads.emplace_back([this, &found, i] {
        const SurveyResult result = i == 0 ? surveys_[i]->Lead() : surveys_[i]->Follow();
        found[i] = Lines(result.checks);
        paths_[i] = result.paths.size();
      });
    for (std::thread& thread : threads) thread.join();
    Close();
    return found;
  }
  void Close() {
    for (Door& door : doors_) door.Close();
    for (auto& survey : surveys_) survey.reset();
  }

  Door doors_[kTasks];
  SurveyOptions options_[kTasks];
  Facts facts_[kTasks];
  std::unique_ptr<Survey> surveys_[kTasks];
  size_t paths_[kTasks] = {};
};

TEST_F(SurveyTest, AllGetTheResult) {
  const auto found = Run();
  for (int i = 0; i < kTasks; ++i) {
    EXPECT_EQ(paths_[i], 6u);
    EXPECT_THAT(found[i], SizeIs(5)) << "two tasks and three pairs";
    EXPECT_THAT(found[i], Each(Not(HasSubstr("FAILED")))) << i;
    EXPECT_THAT(found[i], Contains(HasSubstr("worker 2  ")));
    EXPECT_THAT(found[i], Contains(AllOf(HasSubstr("worker 0, worker 2"), HasSubstr("Gbit/s"))));
  }
}

TEST_F(SurveyTest, EachDifferenceIsNamedEverywhere) {
  facts_[1].job["seed"] = 2;
  facts_[2].versions["LibTorch"] = "2.10.0";
  facts_[2].checks = {{.name = "devices", .ok = false, .what = "no GPU here"}};
  options_[1].wall_clock = [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               (std::chrono::system_clock::now() - std::chrono::hours(1)).time_since_epoch())
        .count();
  };
  const auto found = Run();
  for (int i = 0; i < kTasks; ++i) {
    EXPECT_THAT(found[i], Contains(AllOf(HasSubstr("FAILED  job"),
                                         HasSubstr("worker 1 has another seed than worker 0: 2, "
                                                   "not 1"))));
    EXPECT_THAT(found[i], Contains(HasSubstr("worker 2 has LibTorch 2.10.0, worker 0 has 2.11.0")));
    EXPECT_THAT(found[i], Contains(HasSubstr("the clock of worker 1 is -3600.0 s")));
  }
  EXPECT_THAT(found[0], Contains(HasSubstr("worker 2, devices")));
  EXPECT_THAT(found[1], Contains(HasSubstr("worker 2, devices")));
  EXPECT_THAT(found[2], Not(Contains(HasSubstr("worker 2, devices")))) << "it prints its own";
}

TEST_F(SurveyTest, NothingIsMeasuredInNoTime) {
  for (SurveyOptions& options : options_) options.measuring = Duration::zero();
  const auto found = Run();
  EXPECT_THAT(found[1], Contains(HasSubstr("0 of 6 measured within 0 s")));
  EXPECT_EQ(paths_[1], 0u);
}

TEST_F(SurveyTest, ADataAddressThatIsNoneOfTheHostIsNamed) {
  facts_[2].data_address = "192.0.2.1";
  const auto found = Run();
  EXPECT_THAT(found[0], Contains(AllOf(HasSubstr("FAILED  worker 1, worker 2"),
                                       HasSubstr("cannot reach the data address of worker 2"))));
  EXPECT_THAT(found[0], Contains(HasSubstr("worker 0, worker 1  MTU ")));
}

TEST_F(SurveyTest, ALeaderThatLeavesIsNotAwaited) {
  Start();
  const MonotonicTime start = Clock::now();
  auto session =
      PeerSession::Dial(options_[0].session, Name(1), doors_[1].address(), start + minutes(1));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Ask({{"ask", "facts"}}, start + minutes(1)).ok());
  std::thread leave([&session] {
    std::this_thread::sleep_for(milliseconds(100));
    session->reset();
  });
  const SurveyResult result = surveys_[1]->Follow();
  leave.join();
  EXPECT_LT(Clock::now() - start, minutes(1));
  EXPECT_THAT(Lines(result.checks), Each(HasSubstr("worker 0 has sent no result before its end")));
  EXPECT_EQ(CodeOf(result.checks), ExitCode::kRetryable);
  Close();
}

TEST_F(SurveyTest, ALeaderThatDoesNotComeIsNotAwaitedForLong) {
  Start();
  const MonotonicTime start = Clock::now();
  const SurveyResult result = surveys_[1]->Follow();
  EXPECT_LT(Clock::now() - start, minutes(1));
  EXPECT_THAT(Lines(result.checks), Each(HasSubstr("worker 0 has asked nothing within 20 s")));
  Close();
}

TEST_F(SurveyTest, ALeaderThatCannotCompareSaysSo) {
  Start();
  std::thread leader([this] { surveys_[0]->Cancel({Name(1)}, "worker 2 was not reached"); });
  const SurveyResult result = surveys_[1]->Follow();
  leader.join();
  EXPECT_THAT(Lines(result.checks),
              Each(HasSubstr("worker 0 made no comparison: worker 2 was not reached")));
  Close();
}

TEST_F(SurveyTest, AnEvaluatorThatIsNotListedComparesItself) {
  SurveyOptions options = options_[1];
  options.answer = seconds(5);  // At first, nobody answers.
  options.session.self = "evaluator:0";
  Facts facts = facts_[1];
  facts.task = "evaluator:0";
  facts.job["seed"] = 5;
  const auto evaluator = Survey::Make(options);
  evaluator->SetFacts(facts);
  const auto gone = Lines(evaluator->CompareWithLeader().checks);
  EXPECT_THAT(gone, Each(AllOf(HasSubstr("warn    worker 0"), HasSubstr("cannot be compared"))));
  Start();
  EXPECT_THAT(Lines(evaluator->CompareWithLeader().checks),
              Contains(HasSubstr("evaluator 0 has another seed than worker 0: 5, not 1")));
  Close();
}

TEST_F(SurveyTest, OnlyTheLeaderMayReportAndLetMeasure) {
  Start();
  const MonotonicTime until = Clock::now() + minutes(1);
  auto session = PeerSession::Dial(options_[2].session, Name(1), doors_[1].address(), until);
  ASSERT_TRUE(session.ok()) << session.status();
  const Json questions[] = {{{"ask", "report"}, {"checks", Json::array()}},
                            {{"ask", "measure"}, {"to", Name(0)}},
                            {{"ask", "received"}},
                            {{"ask", "nothing"}},
                            {{"ask", Json::array()}},
                            Json::array(),
                            Json(1)};
  for (const Json& question : questions) {
    const auto answer = (*session)->Ask(question, until);
    EXPECT_THAT(answer.status().ToString(), HasSubstr("does not answer that question")) << question;
  }
  EXPECT_TRUE((*session)->Ask({{"ask", "facts"}}, until).ok());
  Close();
}

TEST_F(SurveyTest, FewSessionsMayLetItReceive) {
  Start();
  const MonotonicTime until = Clock::now() + minutes(1);
  std::vector<std::unique_ptr<PeerSession>> sessions;
  int receiving = 0;
  for (int i = 0; i < 4; ++i) {
    auto session = PeerSession::Dial(options_[2].session, Name(1), doors_[1].address(), until);
    ASSERT_TRUE(session.ok()) << session.status();
    for (int j = 0; j < 2; ++j)
      if ((*session)->Ask({{"ask", "receive"}}, until).ok()) ++receiving;
    sessions.push_back(*std::move(session));
  }
  EXPECT_EQ(receiving, 4) << "two sessions, twice each";
  Close();
}

// ---- Sessions with keys.

class KeyedSession : public testing::Test {
 protected:
  KeyedSession() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~KeyedSession() override { std::filesystem::remove_all(folder_); }
  std::shared_ptr<security::Identity> IdentityOf(const std::string& task, const std::string& key) {
    const std::string path = fmt::format("{}/{}.key", folder_, key);
    std::remove(path.c_str());
    EXPECT_TRUE(security::WriteNewFile(path, std::string(62, 'a') + key + "\n", 0600).ok());
    security::IdentityOptions options;
    options.self = {.cluster = kDigest, .task = task};
    options.run_key = path;
    auto identity = security::Identity::Make(options);
    EXPECT_TRUE(identity.ok()) << identity.status();
    return *identity;
  }
  // Opens a session from `caller` to `answerer`; returns the error of the caller, and then talks.
  static absl::Status Open(const PeerSessionOptions& caller, const PeerSessionOptions& answerer,
                           const std::string& expected) {
    int port = 0;
    const auto socket = BindTo("127.0.0.1", SOCK_STREAM, &port);
    EXPECT_TRUE(socket.ok()) << socket.status();
    const MonotonicTime until = Clock::now() + seconds(5);
    std::thread server([&] {
      if (!WaitFor(socket->get(), POLLIN, until)) return;
      Fd connection(accept4(socket->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      const std::string line = ReceiveLine(connection.get(), until);
      auto session = PeerSession::Accept(answerer, std::move(connection), line, until);
      if (!session.ok()) return;
      EXPECT_EQ((*session)->peer(), caller.self);
      const auto question = (*session)->Receive(until);
      if (question.ok()) (*session)->Send({{"heard", *question}}, until).IgnoreError();
    });
    auto session = PeerSession::Dial(caller, expected, fmt::format("127.0.0.1:{}", port), until);
    absl::Status status = session.status();
    if (session.ok()) {
      const auto answer = (*session)->Ask({{"text", std::string(100'000, 'x')}}, until);
      status = answer.status();
      if (answer.ok()) {
        EXPECT_EQ((*answer)["heard"]["text"].get<std::string>().size(), 100'000u);
      }
    }
    server.join();
    return status;
  }

 private:
  // Other tests run at the same time, each in its own process.
  std::string folder_ = testing::TempDir() + "/muster-preflight-XXXXXX";
};

TEST_F(KeyedSession, TasksWithOneKeyTalk) {
  EXPECT_TRUE(Open({"worker:0", kDigest, IdentityOf("worker:0", "01")},
                   {"worker:1", kDigest, IdentityOf("worker:1", "01")}, "worker:1")
                  .ok());
  EXPECT_TRUE(Open({"worker:0", kDigest}, {"worker:1", kDigest}, "worker:1").ok());
}

TEST_F(KeyedSession, AnotherKeyIsRefused) {
  EXPECT_FALSE(Open({"worker:0", kDigest, IdentityOf("worker:0", "01")},
                    {"worker:1", kDigest, IdentityOf("worker:1", "02")}, "worker:1")
                   .ok());
}

TEST_F(KeyedSession, ATaskMustProveItsName) {
  const absl::Status status = Open({"worker:0", kDigest, IdentityOf("worker:0", "01")},
                                   {"worker:1", kDigest, IdentityOf("worker:2", "01")}, "worker:1");
  EXPECT_THAT(status.ToString(), HasSubstr("its certificate is that of worker:2, not of worker:1"));
}

TEST_F(KeyedSession, OneSideWithoutAKeyIsRefused) {
  const absl::Status status =
      Open({"worker:0", kDigest, IdentityOf("worker:0", "01")}, {"worker:1", kDigest}, "worker:1");
  EXPECT_THAT(status.ToString(), HasSubstr("the other one has none"));
}

TEST_F(KeyedSession, AnotherClusterOrTaskIsRefused) {
  EXPECT_THAT(Open({"worker:0", kDigest}, {"worker:1", "other"}, "worker:1").ToString(),
              HasSubstr("its cluster is another one"));
  EXPECT_THAT(Open({"worker:0", kDigest}, {"worker:1", kDigest}, "worker:2").ToString(),
              HasSubstr("worker:1 answers there"));
}

}  // namespace
}  // namespace muster::preflight
