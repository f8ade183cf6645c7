// Going on after a loss: generations come and go, the members and what they hold stay.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "chief/model_dir/owner.h"
#include "common/rpc/channel.h"
#include "muster/json.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using membership::Member;
using membership::MemberOptions;
using membership::SessionFault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing_support::Becomes;

class Recovery : public ::testing::Test {
 protected:
  explicit Recovery(int workers = 2, TestTimes times = {}) : cluster_(workers, times) {}

  CoordinatorOptions coordinator_options() {
    CoordinatorOptions options = cluster_.coordinator_options();
    options.decision.rejoin = std::chrono::seconds(20);
    return options;
  }
  MemberOptions member_options(int rank) {
    MemberOptions options = cluster_.member_options(rank);
    options.timeouts.rejoin = std::chrono::seconds(20);
    return options;
  }
  // Trains until the generation is lost, after step `last`; then finishes in the next one, at 7, or
  // in one after it.
  Crew::Body LoseOne(int64_t last, Generation* next) {
    return [this, last, next](Member& member, Generation& generation) {
      training_.DecrementCount();
      (void)WaitInBarrier(member, generation);
      EXPECT_FALSE(member.JobEnded());
      generation.replicas.clear();
      return FinishNext(member, last, next);
    };
  }

  // Takes part as the chief until the others train, and goes with its coordinator.
  void LoseTheChief() {
    auto chief = Member::Make(member_options(0));
    ASSERT_TRUE(chief->NextGeneration(0).ok());
    training_.Wait();
    cluster_.StopChief();
  }

  TestCluster cluster_;
  absl::BlockingCounter training_{2};  // bodies of LoseOne that have their first generation
};

TEST_F(Recovery, AKilledMemberIsReplacedAndTheNewestStateIsKnown) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[3];
  crew.Add(member_options(0), LoseOne(12, &next[0]));
  crew.Add(member_options(1), LoseOne(13, &next[1]));  // had committed one more
  auto victim = Member::Make(member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(2).Close();
  victim.reset();
  crew.Add(member_options(2), [&](Member& member, Generation& generation) {
    next[2] = std::move(generation);
    return FinishAt7(member, next[2]);
  });
  crew.Join();
  const Verdict verdict = cluster_.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kDone) << verdict.message;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(crew.result(rank).ok()) << Message(crew.result(rank));
    EXPECT_EQ(next[rank].rank, rank);
    EXPECT_EQ(next[rank].world_size(), 3);
    EXPECT_EQ(next[rank].owner, 1);
    EXPECT_EQ(next[rank].owner_step, 13);
    EXPECT_EQ(next[rank].run_id, "run-a");
  }
}

TEST_F(Recovery, ASessionThatAFaultBreaksIsResumed) {
  CoordinatorOptions options = coordinator_options();
  MemberOptions faulty = member_options(1);
  options.decision.resume = faulty.timeouts.resume = kLimit;
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  std::atomic<int> breaks = 0;
  faulty.session_fault = [&] {
    return ++breaks <= 3 ? SessionFault::kBroken : SessionFault::kNone;
  };
  Crew crew;
  for (int rank : {0, 2}) crew.Add(member_options(rank), FinishAt7);
  crew.Add(faulty, [&](Member& member, Generation& generation) {
    EXPECT_TRUE(Becomes([&] { return breaks >= 5; }));
    return FinishAt7(member, generation);
  });
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
}

TEST_F(Recovery, ASilentMemberIsLostByBothSidesAndComesBack) {
  CoordinatorOptions options = coordinator_options();
  options.decision.heartbeat = std::chrono::seconds(2);
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  std::atomic<bool> silent = false, again = false;
  Crew crew;
  Generation next[3];
  for (int rank : {0, 2}) {
    MemberOptions member = member_options(rank);
    member.timeouts.heartbeat_interval = std::chrono::milliseconds(100);
    crew.Add(std::move(member), LoseOne(12, &next[rank]));
  }
  MemberOptions faulty = member_options(1);
  faulty.timeouts.heartbeat = std::chrono::seconds(2);
  faulty.timeouts.heartbeat_interval = std::chrono::milliseconds(100);
  faulty.session_fault = [&] {
    if (silent) return SessionFault::kSilent;
    return again.exchange(false) ? SessionFault::kBroken : SessionFault::kNone;
  };
  crew.Add(faulty, [&](Member& member, Generation& generation) {
    silent = true;
    (void)WaitInBarrier(member, generation);  // it has lost the chief, and the chief it
    generation.replicas.clear();
    again = true;
    silent = false;
    return FinishNext(member, 12, &next[1]);
  });
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  for (const Generation& generation : next) EXPECT_EQ(generation.world_size(), 3);
}

TEST_F(Recovery, NobodyComesAndTheVerdictTellsWhoWasLostAndWhy) {
  CoordinatorOptions options = coordinator_options();
  options.decision.rejoin = std::chrono::milliseconds(300);
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  Generation next[2];
  for (int rank : {0, 1}) crew.Add(member_options(rank), LoseOne(12, &next[rank]));
  auto victim = Member::Make(member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(2).Close();
  victim.reset();
  crew.Join();
  const Verdict verdict = cluster_.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.task, "worker:1");
  EXPECT_THAT(verdict.message, HasSubstr("the process is gone"));
  EXPECT_THAT(verdict.message, HasSubstr("no process took its place within 0.3 s"));
  for (int i : {0, 1}) EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kRetryable);
}

TEST_F(Recovery, ARestartedChiefFindsItsMembersAndTheirState) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[3];
  for (int rank : {1, 2}) crew.Add(member_options(rank), LoseOne(12, &next[rank]));
  LoseTheChief();
  CoordinatorOptions successor = coordinator_options();
  successor.admission.term = 2;
  ASSERT_TRUE(cluster_.StartChief(std::move(successor)).ok());
  crew.Add(member_options(0), [&](Member& member, Generation& generation) {
    next[0] = std::move(generation);
    return FinishAt7(member, next[0]);
  });
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(next[0].id, (2ull << 32) | 1);
  EXPECT_EQ(next[0].owner, 1);
  EXPECT_EQ(next[0].owner_step, 12);
}

TEST_F(Recovery, AChiefThatNeverComesBackEndsItsMembers) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[3];
  for (int rank : {1, 2}) {
    MemberOptions options = member_options(rank);
    options.timeouts.rejoin = std::chrono::milliseconds(300);
    crew.Add(std::move(options), LoseOne(12, &next[rank]));
  }
  LoseTheChief();
  crew.Join();
  for (int i : {0, 1}) {
    EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(crew.result(i))), HasSubstr("(timeouts.rejoin)"));
  }
}

TEST_F(Recovery, AChiefWithoutARecordGoesOnWithItsMembersRun) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[3];
  for (int rank : {1, 2}) crew.Add(member_options(rank), LoseOne(12, &next[rank]));
  LoseTheChief();
  CoordinatorOptions successor = coordinator_options();
  successor.admission.run_id = "run-b";
  successor.admission.fresh_run = true;
  std::vector<std::pair<std::string, uint32_t>> kept;  // the coordinator's thread's
  absl::Notification asked, written;
  successor.record_identity = [&](const std::string& run_id, uint32_t term) {
    kept.emplace_back(run_id, term);
    if (kept.size() == 1) asked.Notify();
    written.WaitForNotification();
    return absl::OkStatus();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(successor)).ok());
  // No member continues a run that is not on the disk, and a slow disk delays no other call.
  ASSERT_TRUE(asked.WaitForNotificationWithTimeout(absl::Seconds(20)));
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster_.address()));
  proto::StatusReply reply;
  ASSERT_TRUE(stub->Status(rpc::WithDeadline(kLimit).get(), {}, &reply).ok());
  EXPECT_EQ(reply.run_id(), "run-b");
  for (const auto& member : reply.members()) EXPECT_FALSE(member.joined());
  written.Notify();
  crew.Add(member_options(0), [&](Member& member, Generation& generation) {
    next[0] = std::move(generation);
    return FinishAt7(member, next[0]);
  });
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_THAT(kept, ElementsAre(Pair("run-a", 1), Pair("run-a", 2)));
  EXPECT_EQ(next[0].run_id, "run-a");
  EXPECT_GT(next[0].id >> 32, 1u);  // above what the members have seen
}

// It has lost its record, and dies when it has taken the folder and its members have not come yet.
TEST_F(Recovery, AChiefThatDiesBeforeItKnowsItsMembersRunLeavesThatToItsSuccessor) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[3];
  for (int rank : {1, 2}) crew.Add(member_options(rank), LoseOne(12, &next[rank]));
  LoseTheChief();
  std::string folder = std::filesystem::temp_directory_path() / "muster-recovery-XXXXXX";
  OwnerOptions owner;
  owner.model_dir = mkdtemp(folder.data());
  { ASSERT_TRUE(Owner::Take(owner).ok()); }
  auto taken = Owner::Take(owner);
  ASSERT_TRUE(taken.ok()) << Message(taken.status());
  CoordinatorOptions successor = coordinator_options();
  successor.admission.run_id = (*taken)->run_id();
  successor.admission.term = (*taken)->term();
  successor.admission.fresh_run = (*taken)->previous_run_id().empty();
  successor.record_identity = [&](const std::string& run_id, uint32_t term) {
    return (*taken)->RecordRun(run_id, term);
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(successor)).ok());
  Json on_disk;
  crew.Add(member_options(0), [&](Member& member, Generation& generation) {
    on_disk = *ReadJsonFile(folder + "/owner.json");
    next[0] = std::move(generation);
    return FinishAt7(member, next[0]);
  });
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(next[0].run_id, "run-a");
  EXPECT_EQ(next[0].id >> 32, 2u);
  EXPECT_EQ(on_disk["run_id"], "run-a") << "a crash right then would have forgotten it";
  EXPECT_EQ(on_disk["epoch"], 2);
  cluster_.StopChief();
  taken->reset();
  std::filesystem::remove_all(folder);
}

TEST_F(Recovery, AGenerationWaitsUntilItsRunIsOnTheDisk) {
  CoordinatorOptions options = coordinator_options();
  int asked = 0;  // the coordinator's thread's
  options.record_identity = [&asked](const std::string&, uint32_t) -> absl::Status {
    if (++asked < 4) return absl::UnavailableError("no space left");
    return absl::OkStatus();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  for (int rank : {0, 1, 2}) crew.Add(member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  cluster_.StopChief();
  EXPECT_EQ(asked, 4);
}

TEST_F(Recovery, ADiskThatDoesNotAnswerHoldsUpNoDecision) {
  CoordinatorOptions options = coordinator_options();
  options.decision.join = std::chrono::seconds(6);
  absl::Notification answers;
  options.record_identity = [&answers](const std::string&, uint32_t) {
    answers.WaitForNotification();
    return absl::OkStatus();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  for (int rank : {0, 1, 2}) crew.Add(member_options(rank), FinishAt7);
  crew.Join();
  const Verdict verdict = cluster_.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.message,
            "no generation could be formed within 6 s (timeouts.join): the disk of model_dir does "
            "not answer");
  answers.Notify();
  cluster_.StopChief();  // which waits for the disk
}

TEST_F(Recovery, ARunThatCannotBeKeptIsARetryableEnd) {
  CoordinatorOptions options = coordinator_options();
  options.decision.join = std::chrono::seconds(6);
  options.record_identity = [](const std::string&, uint32_t) -> absl::Status {
    return absl::UnavailableError("model_dir 'm' cannot be written to: no space left");
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  for (int rank : {0, 1, 2}) crew.Add(member_options(rank), FinishAt7);
  crew.Join();
  const Verdict verdict = cluster_.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.message,
            "no generation could be formed within 6 s (timeouts.join): model_dir 'm' cannot be "
            "written to: no space left");
}

// Its cluster is the same: what was left running of an older job.
TEST_F(Recovery, WhatIsLeftOfAnotherJobGivesANewOneNeitherItsRunNorAnEnd) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew leftover;
  for (int rank : {1, 2}) {
    leftover.Add(member_options(rank), [&](Member& member, Generation& generation) {
      training_.DecrementCount();
      (void)WaitInBarrier(member, generation);
      generation.replicas.clear();
      return member.NextGeneration(12).status();
    });
  }
  LoseTheChief();
  CoordinatorOptions other = coordinator_options();
  other.admission.run_id = "run-b";
  other.admission.fresh_run = true;
  other.admission.job = "job-b";
  std::string kept;
  other.record_identity = [&kept](const std::string& run_id, uint32_t) {
    kept = run_id;
    return absl::OkStatus();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(other)).ok());
  leftover.Join();
  for (int i : {0, 1}) {
    EXPECT_EQ(ExitCodeOf(leftover.result(i)), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(leftover.result(i))), HasSubstr("holds state of run run-a"));
  }
  Crew crew;
  for (int rank = 0; rank < 3; ++rank) {
    MemberOptions options = member_options(rank);
    options.job = "job-b";
    crew.Add(std::move(options), FinishAt7);
  }
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(kept, "run-b");
}

// The job file was edited between two starts of the chief, so its workers have an old job file.
// They are started again, and the job continues.
TEST_F(Recovery, WhatIsLeftOfTheSameRunDoesNotEndAnEditedJob) {
  for (const bool cluster : {false, true}) {
    CoordinatorOptions first = coordinator_options();
    ASSERT_TRUE(cluster_.StartChief(std::move(first)).ok());
    absl::BlockingCounter training(2);
    Crew leftover;
    for (int rank : {1, 2}) {
      leftover.Add(member_options(rank), [&](Member& member, Generation& generation) {
        training.DecrementCount();
        (void)WaitInBarrier(member, generation);
        generation.replicas.clear();
        return member.NextGeneration(12).status();
      });
    }
    {
      auto chief = Member::Make(member_options(0));
      ASSERT_TRUE(chief->NextGeneration(0).ok());
      training.Wait();
      cluster_.StopChief();
    }
    CoordinatorOptions edited = coordinator_options();
    edited.admission.term = 2;
    (cluster ? edited.admission.cluster_digest : edited.admission.job) = "edited";
    ASSERT_TRUE(cluster_.StartChief(std::move(edited)).ok());
    leftover.Join();
    for (int i : {0, 1}) {
      EXPECT_EQ(ExitCodeOf(leftover.result(i)), ExitCode::kRetryable);
      EXPECT_THAT(std::string(Message(leftover.result(i))),
                  HasSubstr(cluster ? "differ in cluster.worker[1]" : "differ in 'learning_rate'"));
      EXPECT_THAT(std::string(Message(leftover.result(i))), HasSubstr("has to be started again"));
    }
    Crew crew;
    for (int rank = 0; rank < 3; ++rank) {
      MemberOptions options = member_options(rank);
      (cluster ? options.cluster_digest : options.job) = "edited";
      crew.Add(std::move(options), FinishAt7);
    }
    crew.Join();
    EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
    cluster_.StopChief();
  }
}

class QuickRecovery : public Recovery {
 protected:
  static TestTimes Times() {
    TestTimes times;
    times.heartbeat = std::chrono::milliseconds(1500);
    return times;
  }
  QuickRecovery() : Recovery(1, Times()) {}
};

TEST_F(QuickRecovery, AFrozenMemberThatWakesJoinsAsNew) {
  CoordinatorOptions chief = coordinator_options();
  std::vector<MemberLossReport> lost;
  chief.on_lost = [&lost](const MemberLossReport& member) { lost.push_back(member); };
  ASSERT_TRUE(cluster_.StartChief(std::move(chief)).ok());
  Crew crew;
  Generation next[2];
  MemberOptions survivor = member_options(0), options = member_options(1);
  survivor.timeouts.heartbeat = options.timeouts.heartbeat = std::chrono::hours(1);
  crew.Add(std::move(survivor), LoseOne(12, &next[0]));
  options.timeouts.heartbeat_interval = std::chrono::hours(1);  // says nothing by itself
  options.host.pid = 4711;
  crew.Add(std::move(options), LoseOne(12, &next[1]));
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_GT(next[1].id, (1ull << 32) | 1);
  EXPECT_EQ(next[1].owner_step, 12);
  // On a busy machine the other one may be as silent.
  const auto frozen = std::find_if(lost.begin(), lost.end(), [](const MemberLossReport& member) {
    return member.task.ToString() == "worker:0";
  });
  ASSERT_NE(frozen, lost.end());
  EXPECT_EQ(frozen->pid, 4711);
  EXPECT_FALSE(frozen->asked_to_exit);
  EXPECT_THAT(frozen->why, HasSubstr("no heartbeat"));
}

class PairRecovery : public Recovery {
 protected:
  PairRecovery() : Recovery(1) {}
};

// The chief was frozen: it knows nothing of what its members think of it.
TEST_F(PairRecovery, AMemberThatGaveTheChiefUpEndsTheGenerationWhenItComesBack) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  Crew crew;
  Generation next[2];
  crew.Add(member_options(0), LoseOne(12, &next[0]));
  MemberOptions options = member_options(1);
  options.timeouts.heartbeat = std::chrono::milliseconds(1000);
  options.timeouts.heartbeat_interval = std::chrono::seconds(5);  // nor are there answers
  crew.Add(std::move(options), LoseOne(12, &next[1]));
  const MonotonicTime start = Clock::now();
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_LT(Clock::now() - start, coordinator_options().decision.heartbeat);
  EXPECT_GT(next[1].id, (1ull << 32) | 1);
}

// A replacement on a host without the right devices, or files.
TEST_F(PairRecovery, AReplacementThatCannotTakeThePlaceEndsAloneAndTheJobWaits) {
  CoordinatorOptions chief = coordinator_options();
  absl::Notification lost;
  chief.on_lost = [&lost](const MemberLossReport& member) {
    EXPECT_TRUE(member.missed);
    lost.Notify();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(chief)).ok());
  Crew crew;
  MemberOptions survivor = member_options(0);
  survivor.held_devices.kind = "cpu";
  crew.Add(std::move(survivor), FinishAfter("worker 0"));
  auto victim = Member::Make(member_options(1));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  victim.reset();
  ASSERT_TRUE(lost.WaitForNotificationWithTimeout(absl::Seconds(20)));

  membership::EarlyFailure early;
  early.task = "worker:0";
  early.chief_address = cluster_.address();
  early.cluster_digest = "digest-a";
  early.failure = ConfigurationError("devices is \"cuda\", and this host has no GPU");
  bool try_again = false;
  EXPECT_FALSE(membership::ReportFailureTo(early, kLimit, nullptr, &try_again).ok());
  EXPECT_TRUE(try_again);

  MemberOptions wrong = member_options(1);
  wrong.held_devices.kind = "cuda";
  wrong.held_devices.uuids = {"GPU-1"};
  const auto refused = Member::Make(std::move(wrong))->NextGeneration(0);
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("the job continues without"));

  MemberOptions right = member_options(1);
  right.held_devices.kind = "cpu";
  crew.Add(std::move(right), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
}

// Its host died: the chief has seen the connection break, and still waits for the process to
// resume.
TEST_F(PairRecovery, AReplacementThatFailsBeforeTheLossIsCertainEndsAloneToo) {
  CoordinatorOptions chief = coordinator_options();
  chief.decision.resume = std::chrono::hours(1);
  ASSERT_TRUE(cluster_.StartChief(std::move(chief)).ok());
  Crew crew;
  crew.Add(member_options(0), FinishAfter("worker 0"));
  auto victim = Member::Make(member_options(1));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  victim.reset();

  membership::EarlyFailure early;
  early.task = "worker:0";
  early.chief_address = cluster_.address();
  early.cluster_digest = "digest-a";
  early.failure = ConfigurationError("there is no file train.bin");
  bool try_again = false;
  // Until the chief has seen that the connection is broken, another process is worker 0.
  for (const auto until = Clock::now() + kLimit; !try_again && Clock::now() < until;)
    (void)membership::ReportFailureTo(early, std::chrono::seconds(5), nullptr, &try_again);
  EXPECT_TRUE(try_again);

  crew.Add(member_options(1), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
}

// A process that joins and leaves before the first step costs the run nothing.
TEST_F(PairRecovery, OneThatIsLostBeforeTheFirstGenerationIsMissedByNone) {
  CoordinatorOptions chief = coordinator_options();
  absl::Notification lost;
  chief.on_lost = [&lost](const MemberLossReport& member) {
    EXPECT_FALSE(member.missed);
    lost.Notify();
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(chief)).ok());
  auto gone = Member::Make(member_options(1));
  ASSERT_TRUE(gone->Join().ok());
  gone.reset();
  EXPECT_TRUE(lost.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(PairRecovery, AReplacedMemberThatWakesIsSuperseded) {
  CoordinatorOptions chief = coordinator_options();
  chief.admission.suspect = std::chrono::milliseconds(300);
  ASSERT_TRUE(cluster_.StartChief(std::move(chief)).ok());
  Crew crew;
  Generation next;
  crew.Add(member_options(0), LoseOne(12, &next));
  MemberOptions options = member_options(1);
  options.timeouts.heartbeat_interval = options.timeouts.heartbeat = std::chrono::hours(1);
  options.timeouts.resume = std::chrono::hours(1);
  auto frozen = Member::Make(std::move(options));
  auto old = frozen->NextGeneration(0);
  ASSERT_TRUE(old.ok());
  // Silent for so long that a namesake may take its place.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  absl::Notification finish;
  crew.Add(member_options(1), [&](Member& member, Generation& generation) {
    finish.WaitForNotification();
    return FinishAt7(member, generation);
  });
  const absl::Status local = old->replicas[0]->Barrier()->Wait();
  EXPECT_FALSE(local.ok());
  old->replicas.clear();
  const auto refused = frozen->NextGeneration(12);
  finish.Notify();
  crew.Join();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("superseded"));
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
}

TEST_F(PairRecovery, AMemberThatHangsIsExpelledAndReplaced) {
  CoordinatorOptions options = coordinator_options();
  options.decision.phase[static_cast<int>(Phase::kData)] = std::chrono::milliseconds(600);
  std::atomic<bool> was_asked = false;
  options.on_lost = [&was_asked](const MemberLossReport& member) {
    was_asked = member.asked_to_exit;
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  Crew crew;
  Generation next;
  crew.Add(member_options(0), LoseOne(12, &next));
  MemberOptions hanging = member_options(1);
  absl::Notification asked_to_exit;
  hanging.on_verdict = [&](const Verdict& verdict) {
    EXPECT_EQ(verdict.code, ExitCode::kRetryable);
    EXPECT_THAT(verdict.message, HasSubstr("in phase 'data'"));
    asked_to_exit.Notify();
  };
  auto hangs = Member::Make(std::move(hanging));
  ASSERT_TRUE(hangs->NextGeneration(0).ok());
  hangs->SetPhase(Phase::kData, 12);
  EXPECT_TRUE(asked_to_exit.WaitForNotificationWithTimeout(absl::Seconds(20)));
  hangs.reset();
  crew.Add(member_options(1), FinishAt7);
  crew.Join();
  EXPECT_TRUE(was_asked);
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(next.owner_step, 12);
}

TEST_F(PairRecovery, AnAbortThatHangsIsStuckToo) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  absl::Notification stuck, gate;
  MemberOptions options = member_options(1);
  options.timeouts.abort = std::chrono::milliseconds(200);
  options.on_stuck = [&](const std::string&) { stuck.Notify(); };
  options.form = [&gate](const collective::GroupSpec& spec, const std::vector<int>&,
                         const std::function<bool()>&) {
    std::vector<std::unique_ptr<collective::Communicator>> made;
    made.push_back(std::make_unique<FakeCommunicator>(spec.rank, 2, &gate));
    return absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(std::move(made));
  };
  auto member = Member::Make(std::move(options));
  absl::StatusOr<Generation> generation;
  {
    auto chief = Member::Make(member_options(0));
    std::thread chief_thread([&] { EXPECT_TRUE(chief->NextGeneration(0).ok()); });
    generation = member->NextGeneration(0);
    EXPECT_TRUE(generation.ok());
    chief_thread.join();
    cluster_.StopChief();
  }
  EXPECT_TRUE(stuck.WaitForNotificationWithTimeout(absl::Seconds(20)));
  gate.Notify();
}

TEST_F(Recovery, ASilentChiefIsReported) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  MemberOptions options = member_options(1);
  options.timeouts.heartbeat = std::chrono::milliseconds(500);
  absl::Notification silent, back;
  options.on_chief_silent = [&](int64_t pid, Duration silence) {
    EXPECT_EQ(pid, getpid());
    if (silence == Duration::zero()) return back.Notify();
    EXPECT_GE(silence, std::chrono::milliseconds(500));
    silent.Notify();
  };
  auto member = Member::Make(std::move(options));
  ASSERT_TRUE(member->Join().ok());
  cluster_.StopChief();
  EXPECT_TRUE(silent.WaitForNotificationWithTimeout(absl::Seconds(20)));
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  EXPECT_TRUE(back.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(PairRecovery, ALoopThatDoesNotComeBackIsStuck) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  MemberOptions options = member_options(1);
  options.timeouts.abort = std::chrono::milliseconds(200);
  absl::Notification stuck;
  options.on_stuck = [&](const std::string& why) {
    EXPECT_THAT(why, HasSubstr("did not return within 0.2 s"));
    EXPECT_THAT(why, HasSubstr("lost the chief"));
    stuck.Notify();
  };
  auto member = Member::Make(std::move(options));
  {
    auto chief = Member::Make(member_options(0));
    std::thread chief_thread([&] { EXPECT_TRUE(chief->NextGeneration(0).ok()); });
    EXPECT_TRUE(member->NextGeneration(0).ok());
    chief_thread.join();
    cluster_.StopChief();
  }
  EXPECT_TRUE(stuck.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(PairRecovery, ALoopThatSavesIsNotStuckUntilItHasSaved) {
  ASSERT_TRUE(cluster_.StartChief(coordinator_options()).ok());
  MemberOptions options = member_options(1);
  options.timeouts.abort = std::chrono::milliseconds(200);
  std::atomic<bool> saving = true;
  absl::Notification stuck;
  options.on_stuck = [&](const std::string&) {
    EXPECT_FALSE(saving);
    stuck.Notify();
  };
  auto member = Member::Make(std::move(options));
  {
    auto chief = Member::Make(member_options(0));
    std::thread chief_thread([&] { EXPECT_TRUE(chief->NextGeneration(0).ok()); });
    const auto generation = member->NextGeneration(0);
    ASSERT_TRUE(generation.ok());
    chief_thread.join();
    member->SetPhase(Phase::kSave, 7);
    cluster_.StopChief();
    (void)generation->replicas[0]->Barrier()->Wait();  // aborted: the generation is over
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  saving = false;
  member->SetPhase(Phase::kForward, 8);
  EXPECT_TRUE(stuck.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(Recovery, ElasticShrinksAndGrowsBack) {
  CoordinatorOptions options = coordinator_options();
  options.decision.min_members = 2;
  options.decision.grace = std::chrono::milliseconds(200);
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  std::atomic<int> sizes[2][3] = {};
  absl::Notification shrunk;
  Crew crew;
  for (int rank : {0, 2}) {
    crew.Add(member_options(rank), [&, i = rank / 2](Member& member, Generation& first) {
      training_.DecrementCount();
      sizes[i][0] = first.world_size();
      Generation now = std::move(first);
      for (int n = 1; n < 3; ++n) {
        (void)WaitInBarrier(member, now);
        now.replicas.clear();
        auto next = member.NextGeneration(12 + n);
        if (!next.ok()) return next.status();
        now = *std::move(next);
        sizes[i][n] = now.world_size();
        EXPECT_EQ(now.rank, n == 1 ? i : 2 * i);
        if (n == 1 && i == 0) shrunk.Notify();
      }
      return FinishAt7(member, now);
    });
  }
  auto victim = Member::Make(member_options(1));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  training_.Wait();
  cluster_.data_port(1).Close();
  victim.reset();
  ASSERT_TRUE(shrunk.WaitForNotificationWithTimeout(absl::Seconds(20)));
  crew.Add(member_options(1), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  for (int i : {0, 1}) {
    EXPECT_EQ(sizes[i][0], 3);
    EXPECT_EQ(sizes[i][1], 2);
    EXPECT_EQ(sizes[i][2], 3);
  }
}

}  // namespace
}  // namespace muster::chief::testing
