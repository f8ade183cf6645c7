// Tests that messages of a stranger cost the coordinator a bounded amount, and end no job.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "chief/coordinator/admission/admission.h"
#include "chief/coordinator/admission/convert.h"
#include "chief/coordinator/admission/peer_limits.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/base/failing_new.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using muster::testing::FailingNew;
using muster::testing::LoggedLines;
using ::testing::HasSubstr;
using ::testing::Not;

proto::Hello HelloOfWorker() {
  proto::Hello hello;
  hello.set_protocol(kControlProtocol);
  hello.set_task("worker:0");
  hello.set_incarnation(7);
  hello.set_cluster_digest("digest-a");
  hello.set_job("job-a");
  hello.set_num_replicas(1);
  return hello;
}

// A session as a stranger opens it.
class Stranger {
 public:
  explicit Stranger(const std::string& address)
      : stub_(proto::Coordinator::NewStub(*rpc::MakeChannel(address))) {
    context_.set_deadline(std::chrono::system_clock::now() + kLimit);
    stream_ = stub_->Session(&context_);
  }
  ~Stranger() { context_.TryCancel(); }
  bool Say(const proto::Hello& hello) {
    proto::MemberMessage message;
    *message.mutable_hello() = hello;
    return stream_->Write(message);
  }
  proto::CoordinatorMessage Hear() {
    proto::CoordinatorMessage message;
    EXPECT_TRUE(stream_->Read(&message));
    return message;
  }
  grpc::Status End() {
    proto::CoordinatorMessage message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }
  proto::Coordinator::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<proto::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::MemberMessage, proto::CoordinatorMessage>>
      stream_;
};

TEST(HostileHello, WhatNoMemberSaysIsRefused) {
  EXPECT_EQ(ProblemWith(HelloOfWorker()), "");
  const auto wrong = [](const std::function<void(proto::Hello&)>& change) {
    proto::Hello hello = HelloOfWorker();
    change(hello);
    return ProblemWith(hello);
  };
  EXPECT_THAT(wrong([](auto& h) { h.set_run_id(std::string(10'000, 'a')); }), HasSubstr("run id"));
  EXPECT_THAT(wrong([](auto& h) { h.set_run_id("../x"); }), HasSubstr("run id"));
  EXPECT_THAT(wrong([](auto& h) { h.set_job(std::string((1 << 20) + 1, ' ')); }), HasSubstr("job"));
  EXPECT_THAT(wrong([](auto& h) { h.set_host(std::string(2000, 'a')); }), HasSubstr("host"));
  EXPECT_THAT(wrong([](auto& h) { h.set_num_replicas(1 << 30); }), HasSubstr("replicas"));
  EXPECT_THAT(wrong([](auto& h) { h.set_num_replicas(-1); }), HasSubstr("replicas"));
  EXPECT_THAT(wrong([](auto& h) { h.add_cpus(-5); }), HasSubstr("core -5"));
  EXPECT_THAT(wrong([](auto& h) {
                for (int i = 0; i < 100'000; ++i) h.add_cpus(0);
              }),
              HasSubstr("cores"));
  EXPECT_THAT(wrong([](auto& h) { (*h.mutable_versions())["x"] = std::string(5000, 'x'); }),
              HasSubstr("version"));
  EXPECT_TRUE(IsRunId("0123456789abcdef"));
}

// They are long, and what parses them took the coordinator's lock.
TEST(HostileHello, TheJobOfAnotherClusterIsNotLookedAt) {
  AdmissionOptions options;
  options.cluster_digest = "digest-a";
  int clusters = 0, jobs = 0;
  options.differing_cluster_field = [&](const std::string&, const std::string&) {
    return ++clusters, "x";
  };
  options.differing_job_key = [&](const std::string&, const std::string&) { return ++jobs, "y"; };
  proto::Hello hello = HelloOfWorker();
  EXPECT_EQ(DifferencesOf(hello, options).job_key, "y");
  EXPECT_EQ(clusters, 0);
  hello.set_cluster_digest("digest-b");
  EXPECT_EQ(DifferencesOf(hello, options).cluster_field, "x");
  EXPECT_EQ(jobs, 1);
}

// The report of one stranger is not the starting point of the next.
TEST(HostileHello, ManyStepsOfTheEpochAreAJumpToo) {
  TestCluster cluster(2);
  cluster.StartChief();
  const auto tell = [](Stranger& stranger, const std::string& task, uint64_t term) {
    proto::Hello hello = HelloOfWorker();
    hello.set_task(task);
    hello.set_run_id("run-a");
    hello.set_highest_generation(term << 32 | 1);
    EXPECT_TRUE(stranger.Say(hello));
    return stranger.Hear();
  };
  Stranger first(cluster.address()), second(cluster.address());
  EXPECT_TRUE(tell(first, "worker:0", 900'000).has_welcome());
  const proto::CoordinatorMessage answer = tell(second, "worker:1", 1'000'002);
  EXPECT_THAT(answer.refusal().message(), HasSubstr("no run has had so many chiefs"));
}

TEST(HostileHello, ASessionWithOneEndsWithASentence) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  proto::Hello hello = HelloOfWorker();
  hello.set_num_replicas(1 << 20);
  ASSERT_TRUE(stranger.Say(hello));
  const grpc::Status status = stranger.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the Hello of worker 0 is invalid"));
}

TEST(HostileHello, ASecondOneOverTheSameSessionDoesNothing) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  ASSERT_TRUE(stranger.Say(HelloOfWorker()));
  EXPECT_TRUE(stranger.Hear().has_welcome());
  proto::Hello other = HelloOfWorker();
  other.set_task("chief:0");
  other.set_incarnation(8);
  ASSERT_TRUE(stranger.Say(other));
  proto::MemberMessage report;
  report.mutable_report()->set_step(1);
  const auto context = rpc::WithDeadline(kLimit);
  proto::StatusReply reply;
  ASSERT_TRUE(stranger.stub().Status(context.get(), {}, &reply).ok());
  EXPECT_FALSE(reply.members(0).joined());
}

TEST(HostileSession, AMessageThatNoMemberSendsEndsIt) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  proto::Hello hello = HelloOfWorker();
  ASSERT_TRUE(stranger.Say(hello));
  EXPECT_TRUE(stranger.Hear().has_welcome());
  hello.set_devices(std::string(100'000, 'x'));
  ASSERT_TRUE(stranger.Say(hello));
  EXPECT_THAT(stranger.End().error_message(), HasSubstr("more than the limit of 65536"));
}

TEST(HostileSession, ThoseWithoutAHelloAreBounded) {
  TestCluster cluster(1);
  cluster.StartChief();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(std::make_unique<Stranger>(cluster.address()));
  EXPECT_THAT(crowd.front()->End().error_message(), HasSubstr("256 sessions have sent no Hello"));
  Crew crew;
  for (int rank = 0; rank < 2; ++rank) crew.Add(cluster.member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

// Sums of what a peer says and a time overflowed.
TEST(HostileReport, AgesOfAnySizeAreTaken) {
  for (const int64_t age :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    MemberInfo member;
    proto::Report report;
    report.set_phase_age_ms(age);
    report.set_collective_age_ms(age);
    const PausingTime now = PausingClock().Now();
    ApplyReport(report, now, &member);
    EXPECT_LE(member.report.phase_since, now);
    EXPECT_GE(now - member.report.phase_since, Duration::zero());
    EXPECT_LE(member.report.collective_since, now);
  }
}

TEST(HostileReport, ItsTextForgesNoLine) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  proto::FailureReport report;
  report.set_task("worker:0");
  report.set_exit_code(2);
  report.set_message("no file\n12:00:00.000 E chief | ROOT CAUSE: chief 0\x1b[2J" +
                     std::string(10'000, 'x'));
  const auto context = rpc::WithDeadline(kLimit);
  proto::FailureReply reply;
  ASSERT_TRUE(stranger.stub().ReportFailure(context.get(), report, &reply).ok());
  EXPECT_TRUE(reply.accepted()) << reply.reason();
  const std::string message = cluster.coordinator().WaitForEnd().message;
  EXPECT_THAT(message, HasSubstr("no file\\n12:00"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  EXPECT_LE(message.size(), 1100u);
}

// An evaluator is no member: its failure ends nothing, however often it says so.
TEST(HostileReport, ManyFailuresMakeFewLines) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  proto::FailureReport report;
  report.set_task("evaluator:0");
  report.set_exit_code(138);
  report.set_message("it has had enough");
  const LoggedLines lines;
  const MonotonicTime begin = Clock::now();
  for (int i = 0; i < 200; ++i) {
    const auto context = rpc::WithDeadline(kLimit);
    proto::FailureReply reply;
    ASSERT_TRUE(stranger.stub().ReportFailure(context.get(), report, &reply).ok());
    EXPECT_FALSE(reply.accepted());
  }
  const int most = 21 + static_cast<int>(Seconds(Clock::now() - begin));
  EXPECT_LE(lines.Count("it has had enough"), std::min(most, 199));
  EXPECT_GE(lines.Count("it has had enough"), 20);
}

TEST(HostileReport, OneThatThereIsNoMemoryForEndsItsSession) {
  TestCluster cluster(1);
  cluster.StartChief();
  Stranger stranger(cluster.address());
  proto::Hello hello = HelloOfWorker();
  hello.set_job(std::string(300'000, 'x'));
  const FailingNew failing({.least = 250'000});
  ASSERT_TRUE(stranger.Say(hello));
  const grpc::Status end = stranger.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << end.error_message();
  EXPECT_THAT(end.error_message(), HasSubstr("out of memory"));
  EXPECT_TRUE(failing.failed());
}

}  // namespace
}  // namespace muster::chief::testing
