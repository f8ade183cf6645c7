// The contract of failing communicators, and the code that runs all cases.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/unit/collective/contract.h"

namespace muster::testing {

using collective::Buffer;
using collective::DataType;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

class HostMemory final : public BufferMemory {
 public:
  std::shared_ptr<void> Allocate(int64_t bytes) override {
    return std::shared_ptr<std::byte[]>(new std::byte[static_cast<size_t>(bytes)]);
  }
  void Copy(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, bytes); }
};

}  // namespace

BufferMemory& HostBuffers() {
  static HostMemory memory;
  return memory;
}

Placed::Placed(ContractRank& rank, const void* from, int64_t bytes)
    : memory_(rank.memory),
      bytes_(bytes),
      data_(rank.memory.Allocate(std::max<int64_t>(1, bytes))) {
  if (bytes > 0) memory_.Copy(data_.get(), from, bytes);
}
std::vector<std::byte> Placed::Read() const {
  std::vector<std::byte> bytes(bytes_);
  if (bytes_ > 0) memory_.Copy(bytes.data(), data_.get(), bytes_);
  return bytes;
}
Placed Zeros(ContractRank& rank, int64_t count, DataType type) {
  return {rank, std::vector<std::byte>(count * collective::SizeOf(type))};
}

void AwaitCount(ContractRank& rank, int count) {
  const MonotonicTime deadline = Clock::now() + std::chrono::minutes(1);
  while (rank.count.load() < count) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "rank " << rank.rank << " waited a minute for the count of all ranks, "
                    << rank.count.load() << ", to be " << count;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

namespace {

// The last thing that a rank does here: none leaves while another one still waits for something.
void LeaveTogether(ContractRank& rank, int count_before = 0) {
  ++rank.count;
  AwaitCount(rank, count_before + rank.size);
}

absl::Status Sum(ContractRank& rank, const Buffer& buffer) {
  return rank.communicator->AllReduce(buffer, ReduceOp::kSum)->Wait();
}

std::function<void(ContractRank&)> SizesThatDiffer(int64_t count) {
  return [=](ContractRank& rank) {
    const int odd = rank.size / 2;
    const Placed data = Zeros(rank, count + 1, DataType::kFloat32);
    const absl::Status status =
        Sum(rank, data.As(count + (rank.rank == odd ? 1 : 0), DataType::kFloat32));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::to_string(count + 1)));
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::to_string(count) + ", sum"));
    // Where the calls are compared on the host, beside the operation, ranks are named as there.
    const std::string who =
        rank.compares_beside ? "rank " + std::to_string(odd) : rank.name_of(odd);
    EXPECT_THAT(std::string(Message(status)), HasSubstr(who));
    LeaveTogether(rank);
  };
}

enum class Odd { kType, kOp, kVerb };
std::function<void(ContractRank&)> CallsThatDiffer(Odd what, const char* named) {
  return [=](ContractRank& rank) {
    const bool odd = rank.rank == 1;
    const Placed data = Zeros(rank, 5000, DataType::kFloat64);
    const Buffer buffer =
        data.As(5000, odd && what == Odd::kType ? DataType::kFloat64 : DataType::kFloat32);
    const ReduceOp op = odd && what == Odd::kOp ? ReduceOp::kMean : ReduceOp::kSum;
    const collective::WorkPtr work = odd && what == Odd::kVerb
                                         ? rank.communicator->Broadcast(buffer, 0)
                                         : rank.communicator->AllReduce(buffer, op);
    const absl::Status status = work->Wait();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(named));
    EXPECT_THAT(std::string(Message(status)), HasSubstr("all_reduce(float32 x 5000, sum)"));
    LeaveTogether(rank);
  };
}

// The first one, or one in the middle.
std::function<void(ContractRank&)> ARankThatNeverComes(bool first) {
  return [=](ContractRank& rank) {
    const int absent = first ? 0 : rank.size / 2;
    if (rank.rank == absent) return AwaitCount(rank, 2 * (rank.size - 1));
    const Placed data = Zeros(rank, 1000, DataType::kFloat32);
    ++rank.count;
    AwaitCount(rank, rank.size - 1);  // each has the whole limit
    const absl::Status status = Sum(rank, data.As(1000, DataType::kFloat32));
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << rank.rank << ": " << status;
    LeaveTogether(rank, rank.size - 2);
    if (rank.name_of(0).empty()) return;  // the process is named
    const std::string message(Message(status));
    EXPECT_THAT(message, HasSubstr(rank.name_of(absent) + " "));
    EXPECT_THAT(message, HasSubstr("all_reduce(float32 x 1000, sum)"));
    EXPECT_THAT(message, HasSubstr(rank.compares_beside ? "did not come to all_gather"
                                                        : "did not come to all_reduce"));
    for (int other = 0; other < rank.size; ++other) {
      if (other == absent) continue;
      EXPECT_THAT(message, Not(HasSubstr(rank.name_of(other) + " ")));
    }
  };
}

// The last rank stays away; all are aborted, as the coordinator does it.
void AbortFromAnotherThreadEndsTheWaitAtOnceAndPoisons(ContractRank& rank) {
  const auto abort = [&rank] {
    AwaitCount(rank, rank.size - 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // well inside the wait
    const MonotonicTime now = Clock::now();
    rank.communicator->Abort(PeerLost("worker 7 was lost"));
    return now;
  };
  if (rank.rank == rank.size - 1) {
    (void)abort();
    return LeaveTogether(rank, rank.size - 1);
  }
  const Placed data = Zeros(rank, 1'000'000, DataType::kFloat32);
  const Buffer buffer = data.As(1'000'000, DataType::kFloat32);
  MonotonicTime aborted;
  std::thread order([&] { aborted = abort(); });
  const collective::WorkPtr work = rank.communicator->AllReduce(buffer, ReduceOp::kSum);
  ++rank.count;
  const absl::Status status = work->Wait();
  const MonotonicTime ended = Clock::now();
  order.join();
  EXPECT_LT(ended - aborted, std::chrono::minutes(1)) << "not by the deadline of 2 min";
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 7 was lost"));
  const absl::Status poison = rank.communicator->status();
  EXPECT_THAT(std::string(Message(poison)), HasSubstr("worker 7 was lost"));
  EXPECT_EQ(Sum(rank, data.As(1, DataType::kFloat32)), poison) << "poisoned for good";
  LeaveTogether(rank, rank.size - 1);
}

void OneRankThatGivesUpWakesTheOthers(ContractRank& rank) {
  if (rank.rank == rank.size - 1) {
    rank.communicator->Abort(PeerLost("worker 7 was lost"));
    return LeaveTogether(rank);
  }
  const Placed data = Zeros(rank, 100'000, DataType::kFloat32);
  const absl::Status status = Sum(rank, data.As(100'000, DataType::kFloat32));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 7 was lost"));
  LeaveTogether(rank);
}

void ARankThatIsDestroyedWakesTheOthers(ContractRank& rank) {
  if (rank.rank == 1) {
    rank.communicator.reset();
    return LeaveTogether(rank);
  }
  const Placed data = Zeros(rank, 100'000, DataType::kFloat32);
  const absl::Status status = Sum(rank, data.As(100'000, DataType::kFloat32));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  LeaveTogether(rank);
}

void ACallThatCannotBeCarriedOutFailsEverybody(ContractRank& rank) {
  const Placed data = Zeros(rank, 50, DataType::kFloat32);
  const absl::Status status =
      Sum(rank, data.As(50, rank.rank == 0 ? DataType::kByte : DataType::kFloat32));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("Bytes cannot be reduced"));
  LeaveTogether(rank);
}

}  // namespace

const std::vector<ContractCase>& FailureCases() {
  constexpr Duration kBrief = std::chrono::milliseconds(2500);
  static const std::vector<ContractCase> cases = {
      {"SmallSizesThatDifferAreNamedNotHung", SizesThatDiffer(10), 4},
      {"LargeSizesThatDifferAreNamedNotHung", SizesThatDiffer(50'000), 4},
      {"TypesThatDifferAreNamed", CallsThatDiffer(Odd::kType, "float64"), 3},
      {"OpsThatDifferAreNamed", CallsThatDiffer(Odd::kOp, "mean"), 3},
      {"VerbsThatDifferAreNamed", CallsThatDiffer(Odd::kVerb, "broadcast"), 3},
      {"AFirstRankThatNeverComesIsNamed", ARankThatNeverComes(true), 4, kBrief},
      {"ALaterRankThatNeverComesIsNamed", ARankThatNeverComes(false), 4, kBrief},
      {"AbortFromAnotherThreadEndsTheWaitAtOnceAndPoisons",
       AbortFromAnotherThreadEndsTheWaitAtOnceAndPoisons, 3},
      {"OneRankThatGivesUpWakesTheOthers", OneRankThatGivesUpWakesTheOthers, 3},
      {"ARankThatIsDestroyedWakesTheOthers", ARankThatIsDestroyedWakesTheOthers, 3},
      {"ACallThatCannotBeCarriedOutFailsEverybody", ACallThatCannotBeCarriedOutFailsEverybody, 2}};
  return cases;
}

void RunCase(const ContractCase& one, ContractRank& rank) {
  one.run(rank);
  if (::testing::Test::HasFailure() && rank.communicator != nullptr)
    rank.communicator->Abort(PeerLost("another rank's test has failed"));
}

void RunCaseOnThreads(const ContractCase& one,
                      std::vector<std::unique_ptr<collective::Communicator>>& ranks,
                      const std::function<std::string(int)>& name_of, bool compares_beside) {
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (auto& communicator : ranks) {
    threads.emplace_back([&, at = &communicator] {
      ContractRank rank{*at, HostBuffers(), count, name_of, compares_beside};
      RunCase(one, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::testing
