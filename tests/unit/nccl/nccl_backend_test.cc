// The NCCL backend over the double: what it does with states that come late, errors, hangs, aborts.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <thread>

#include "common/base/faults/process_fault.h"
#include "common/collective/group/formation.h"
#include "common/collective/nccl/nccl.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/nccl/nccl_double.h"

extern "C" void MusterMakeNcclCommunicators(muster::collective::NcclRequest* request);
extern "C" void MusterCudaUuids(muster::collective::CudaUuidsRequest* request);

namespace muster::collective {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Made = absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>;

constexpr Duration kSoon = std::chrono::milliseconds(300);
constexpr Duration kLong = std::chrono::seconds(60);
// Far above what anything here takes that does not wait for kLong.
constexpr Duration kPrompt = std::chrono::seconds(30);

Made MakeOver(std::unique_ptr<Communicator> group, const std::vector<int>& per_rank,
              const NcclOptions& options, const std::function<bool()>& aborted = nullptr) {
  NcclRequest request{std::move(group), per_rank, options, aborted, absl::UnknownError("")};
  MusterMakeNcclCommunicators(&request);
  return std::move(request.result);
}

Buffer Of(std::vector<float>* values) {
  return {values->data(), static_cast<int64_t>(values->size()), DataType::kFloat32};
}

class NcclBackend : public testing::Test {
 protected:
  ~NcclBackend() override {
    EXPECT_LT(Clock::now() - start_, kPrompt) << "something waited for a deadline that was not due";
    EXPECT_EQ(nccl_double::Leaks(), 0);
    nccl_double::Reset("");
  }

  // One thread for each rank, which forms and then runs `body`; the statuses of the formations.
  template <typename Body>
  std::vector<absl::Status> Run(int ranks, const std::string& script, NcclOptions options,
                                Body body) {
    nccl_double::Reset(script);
    auto groups = MakeThreadCommunicators(ranks, kLong);
    std::vector<absl::Status> formed(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        NcclOptions mine = options;
        mine.devices = {r};
        if (const auto own = timeouts_.find(r); own != timeouts_.end()) mine.timeout = own->second;
        Made made = MakeOver(std::move(groups[r]), std::vector<int>(ranks, 1), mine);
        formed[r] = made.status();
        if (made.ok()) body(r, *(*made)[0]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return formed;
  }
  // All ranks form, and reduce once; what that gave. As the coordinator does, the first that fails
  // has the others aborted.
  std::vector<absl::Status> ReduceOnce(int ranks, const std::string& script,
                                       NcclOptions options = {}) {
    std::vector<absl::Status> results(ranks);
    std::vector<Communicator*> all(ranks);
    std::barrier together(ranks);
    const auto formed = Run(ranks, script, options, [&](int r, Communicator& communicator) {
      all[r] = &communicator;
      together.arrive_and_wait();
      std::vector<float> values(4, 1);
      results[r] = communicator.AllReduce(Of(&values), ReduceOp::kSum)->Wait();
      if (results[r].ok()) {
        EXPECT_THAT(values, testing::Each(static_cast<float>(ranks)));
      } else {
        for (Communicator* other : all) other->Abort(PeerLost(Message(results[r])));
      }
      together.arrive_and_wait();
    });
    for (const absl::Status& status : formed) EXPECT_TRUE(status.ok()) << status;
    return results;
  }
  static std::vector<std::string> CallsOf(int rank) {
    std::vector<std::string> calls;
    for (const std::string& call : nccl_double::Calls())
      if (call.starts_with(std::to_string(rank) + " ")) calls.push_back(call.substr(2));
    return calls;
  }

  std::map<int, Duration> timeouts_;  // of ranks that have another one than the options
  const MonotonicTime start_ = Clock::now();
};

TEST_F(NcclBackend, CarriesEveryVerbOut) {
  const auto traffic = std::make_shared<transport::Traffic>();
  const auto formed = Run(3, "", {.traffic = traffic}, [](int r, Communicator& c) {
    const auto mine = static_cast<float>(r + 1);
    std::vector<float> one{mine}, all(3), three{mine, 2 * mine, 3 * mine};
    EXPECT_TRUE(c.AllReduce(Of(&one), ReduceOp::kSum)->Wait().ok());
    EXPECT_EQ(one[0], 6);
    one = {mine};
    EXPECT_TRUE(c.AllReduce(Of(&one), ReduceOp::kMean)->Wait().ok());
    EXPECT_EQ(one[0], 2);
    one = {mine};
    EXPECT_TRUE(c.AllReduce(Of(&one), ReduceOp::kMax)->Wait().ok());
    EXPECT_EQ(one[0], 3);
    one = {mine};
    EXPECT_TRUE(c.AllGather(Of(&one), Of(&all))->Wait().ok());
    EXPECT_THAT(all, ElementsAre(1, 2, 3));
    EXPECT_TRUE(c.ReduceScatter(Of(&three), Of(&one), ReduceOp::kSum)->Wait().ok());
    EXPECT_EQ(one[0], 6 * (r + 1));
    EXPECT_TRUE(c.Broadcast(Of(&one), 1)->Wait().ok());
    EXPECT_EQ(one[0], 12);
    EXPECT_TRUE(c.Barrier()->Wait().ok());
  });
  for (const absl::Status& status : formed) EXPECT_TRUE(status.ok()) << status;
  // Operations on 4 bytes: three reductions, a gather, a reduction with scattering, a broadcast.
  EXPECT_EQ(traffic->sent, 3 * (3 * (2 * 2 * 4 / 3) + 2 * 4 + 2 * 4) + 2 * 4);
  EXPECT_EQ(traffic->received, traffic->sent);
}

TEST_F(NcclBackend, OneProcessMayHaveSeveralReplicas) {
  nccl_double::Reset("");
  Made made =
      MakeOver(std::move(MakeThreadCommunicators(1, kLong)[0]), {3}, {.devices = {2, 0, 5}});
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<std::thread> threads;
  for (const auto& communicator : *made) {
    threads.emplace_back([&] {
      std::vector<float> values{1};
      EXPECT_TRUE(communicator->AllReduce(Of(&values), ReduceOp::kSum)->Wait().ok());
      EXPECT_EQ(values[0], 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclBackend, EndsInOrderAndAbortsNothingWhenItIsWell) {
  ReduceOnce(2, "");
  for (const int r : {0, 1})
    EXPECT_THAT(CallsOf(r), ElementsAre("init", "all_reduce", "all_reduce", "finalize", "destroy"));
}

TEST_F(NcclBackend, AbortsWhatDoesNotEndInOrder) {
  ReduceOnce(2, "finalize@0=hang", {.timeout = kSoon});
  EXPECT_THAT(CallsOf(0), testing::IsSupersetOf({"finalize", "abort"}));
  EXPECT_THAT(CallsOf(1), Not(Contains("abort")));
}

TEST_F(NcclBackend, ComesAfterTheCallersWorkAndNotBefore) {
  Run(2, "", {}, [](int r, Communicator& communicator) {
    std::vector<float> values{1};
    nccl_double::Hold(r);
    const WorkPtr work = communicator.AllReduce(Of(&values), ReduceOp::kSum);
    EXPECT_FALSE(work->Done());
    EXPECT_EQ(values[0], 1) << "read before the caller's stream came to it";
    values[0] = 5;  // what the caller's stream would have written
    nccl_double::Release(r);
    EXPECT_TRUE(work->Wait().ok());
    EXPECT_EQ(values[0], 10);
  });
}

TEST_F(NcclBackend, WaitsForACallThatNcclTakesLater) {
  for (const absl::Status& status : ReduceOnce(2, "enqueue@1#1=slow"))
    EXPECT_TRUE(status.ok()) << status;
}

TEST_F(NcclBackend, GivesUpACallThatNcclNeverTakes) {
  timeouts_[1] = kSoon;
  const auto results = ReduceOnce(2, "enqueue@1#1=hang", {.timeout = kLong});
  EXPECT_TRUE(absl::IsDeadlineExceeded(results[1])) << results[1];
  EXPECT_FALSE(results[0].ok()) << "its peer never came";
}

TEST_F(NcclBackend, WrongUsageIsAConfigurationErrorInNcclsWords) {
  const auto results = ReduceOnce(2, "enqueue@1#1=5");
  EXPECT_EQ(ExitCodeOf(results[1]), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(results[1])),
              HasSubstr("invalid usage: the double's last words"));
  EXPECT_FALSE(results[0].ok());
}

TEST_F(NcclBackend, ALostPeerIsRetryableAndEndsNoProcess) {
  for (const char* script : {"async@1#1=6", "async@1#1=2"}) {
    const auto results = ReduceOnce(2, script);
    for (const absl::Status& status : results) {
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable) << script << ": " << status;
      EXPECT_FALSE(IsProcessFault(status)) << status;
    }
    EXPECT_THAT(CallsOf(1), testing::AllOf(Contains("abort"), Not(Contains("finalize"))));
  }
}

TEST_F(NcclBackend, AFaultOfTheDeviceEndsTheProcessThatHasIt) {
  const auto results = ReduceOnce(2, "event@1#1=214");
  EXPECT_TRUE(IsProcessFault(results[1])) << results[1];
  EXPECT_THAT(std::string(Message(results[1])), HasSubstr("uncorrectable ECC error"));
  // The other rank sees a lost peer, and continues.
  EXPECT_EQ(ExitCodeOf(results[0]), ExitCode::kRetryable) << results[0];
  EXPECT_FALSE(IsProcessFault(results[0])) << results[0];
}

TEST_F(NcclBackend, AnErrorOfCudaInNcclEndsTheProcessToo) {
  const auto results = ReduceOnce(2, "async@0#1=1");
  EXPECT_TRUE(IsProcessFault(results[0])) << results[0];
}

TEST_F(NcclBackend, NamesTheOperationThatTheDevicesDoNotFinish) {
  const auto results = ReduceOnce(2, "kernel@1#1=hang", {.timeout = kSoon});
  const bool found = std::any_of(results.begin(), results.end(), [](const absl::Status& status) {
    return Message(status).find("All ranks came to all_reduce(float32 x 4, sum)") !=
           std::string_view::npos;
  });
  EXPECT_TRUE(found) << results[0] << results[1];
}

TEST_F(NcclBackend, AnAbortWakesWhoWaitsAndIsNeverOk) {
  std::vector<absl::Status> results(2);
  Run(2, "kernel#1=hang", {}, [&](int r, Communicator& communicator) {
    std::vector<float> values{1};
    const WorkPtr work = communicator.AllReduce(Of(&values), ReduceOp::kSum);
    std::thread order([&] { communicator.Abort(PeerLost("worker 7 was lost")); });
    results[r] = work->Wait();
    order.join();
    EXPECT_FALSE(communicator.Barrier()->Wait().ok()) << "poisoned for good";
  });
  for (const absl::Status& status : results)
    EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 7 was lost"));
}

TEST_F(NcclBackend, NamesTheRankThatDoesNotCome) {
  absl::Status result;
  std::atomic<bool> over = false;
  Run(2, "", {.timeout = kSoon}, [&](int r, Communicator& communicator) {
    if (r == 1) {
      EXPECT_TRUE(testing_support::Becomes([&] { return over.load(); })) << "rank 0 still waits";
      return;
    }
    std::vector<float> values{1};
    result = communicator.AllReduce(Of(&values), ReduceOp::kSum)->Wait();
    over = true;
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(result)) << result;
  EXPECT_THAT(std::string(Message(result)), HasSubstr("rank 1"));
}

TEST_F(NcclBackend, DifferentCallsAreNamedOnAllRanks) {
  std::vector<absl::Status> results(2);
  Run(2, "", {}, [&](int r, Communicator& communicator) {
    std::vector<float> values(4 + r, 1);
    results[r] = communicator.AllReduce(Of(&values), ReduceOp::kSum)->Wait();
  });
  for (const absl::Status& status : results)
    EXPECT_THAT(std::string(Message(status)), HasSubstr("all_reduce(float32 x 5, sum)"));
}

// ---- Formation

TEST_F(NcclBackend, AConnectionThatIsNeverThroughEndsAtTheDeadlineOfTheFormation) {
  const auto formed = Run(2, "init@1=hang", {.formation_timeout = kSoon},
                          [](int, Communicator&) { ADD_FAILURE() << "formed"; });
  for (const absl::Status& status : formed) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the connection of 2 ranks within 0.3 s"));
  }
  for (const int r : {0, 1}) EXPECT_THAT(CallsOf(r), ElementsAre("init", "abort"));
}

TEST_F(NcclBackend, AWrongConnectionIsAConfigurationError) {
  const auto formed = Run(2, "init=5", {}, [](int, Communicator&) { ADD_FAILURE() << "formed"; });
  for (const absl::Status& status : formed) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the double's last words"));
  }
}

TEST_F(NcclBackend, TheFirstReductionBelongsToTheFormation) {
  const auto formed = Run(2, "kernel@1#0=hang", {.formation_timeout = kSoon},
                          [](int, Communicator&) { ADD_FAILURE() << "formed"; });
  for (const absl::Status& status : formed) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("The first reduction of 2 ranks"));
  }
}

TEST_F(NcclBackend, LinksThatCorruptDataAreNamedBeforeTheFirstStep) {
  nccl_double::Reset("kernel@0#0=wrong");
  const Made made =
      MakeOver(std::move(MakeThreadCommunicators(1, kLong)[0]), {1}, {.devices = {4}});
  EXPECT_EQ(ExitCodeOf(made.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(made.status())),
              HasSubstr("adds up 1 over 1 ranks to 2 on cuda:4"));
}

// A member alone in a formation whose first rank never comes.
Made MakeWithoutTheFirst(const NcclOptions& options, const std::function<bool()>& aborted) {
  auto groups = MakeThreadCommunicators(2, kLong);
  return MakeOver(std::move(groups[1]), {1, 1}, options, aborted);
}

TEST_F(NcclBackend, TheWaitForTheUniqueIdHasTheDeadlineOfTheFormation) {
  nccl_double::Reset("");
  const Made made = MakeWithoutTheFirst({.devices = {1}, .formation_timeout = kSoon}, nullptr);
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  EXPECT_THAT(std::string(Message(made.status())), HasSubstr("rank 0 gave no unique id"));
}

TEST_F(NcclBackend, TheWaitForTheUniqueIdEndsWithTheGeneration) {
  nccl_double::Reset("");
  const MonotonicTime start = Clock::now();
  const Made made = MakeWithoutTheFirst({.devices = {1}, .formation_timeout = kLong},
                                        [&] { return Clock::now() - start > kSoon; });
  EXPECT_EQ(made.status().code(), absl::StatusCode::kAborted) << made.status();
}

TEST_F(NcclBackend, ADeviceThatIsNotThereIsRefused) {
  const Made made =
      MakeOver(std::move(MakeThreadCommunicators(1, kLong)[0]), {1}, {.devices = {8}});
  EXPECT_EQ(ExitCodeOf(made.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(made.status())), HasSubstr("no device cuda:8"));
}

TEST_F(NcclBackend, KnowsDevicesByTheirUuids) {
  const std::vector<int> devices{3, 0};
  CudaUuidsRequest request{devices, absl::UnknownError("")};
  MusterCudaUuids(&request);
  ASSERT_TRUE(request.result.ok()) << request.result.status();
  EXPECT_THAT(*request.result, ElementsAre("GPU-00000000-0000-0000-0000-000000000003",
                                           "GPU-00000000-0000-0000-0000-000000000000"));
}

}  // namespace
}  // namespace muster::collective
