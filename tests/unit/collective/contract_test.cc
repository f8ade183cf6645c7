// The communicator's contract, run over every backend: results against a plain reference, and what
// happens when ranks disagree, stay away or give up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/unit/collective/group_fixture.h"

namespace muster {
namespace {

using testing::GroupOptions;
using ::testing::HasSubstr;
using testing::MakeGroup;
using testing::OnEachRank;
using testing::TestGroup;

float HalfToFloat(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.f : 1.f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024.f + fraction, exponent - 25)
                          : std::ldexp(static_cast<float>(fraction), -24));
}
uint16_t SmallIntegerToHalf(int value) {  // |value| <= 64
  uint16_t sign = value < 0 ? 0x8000 : 0;
  if (value == 0) return 0;
  int exponent = 0;
  float x = std::frexp(std::abs(static_cast<float>(value)), &exponent);
  return sign | ((exponent + 14) << 10) | static_cast<uint16_t>((x * 2 - 1) * 1024);
}
float BFloatToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

// One element of any type as a double, and back from a small integer.
double Get(const std::byte* data, int64_t i, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return reinterpret_cast<const float*>(data)[i];
    case DataType::kFloat64:
      return reinterpret_cast<const double*>(data)[i];
    case DataType::kFloat16:
      return HalfToFloat(reinterpret_cast<const uint16_t*>(data)[i]);
    case DataType::kBFloat16:
      return BFloatToFloat(reinterpret_cast<const uint16_t*>(data)[i]);
    case DataType::kInt64:
      return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
    case DataType::kByte:
      return static_cast<double>(data[i]);
  }
  return 0;
}
void Set(std::byte* data, int64_t i, DataType type, int value) {
  switch (type) {
    case DataType::kFloat32:
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DataType::kFloat64:
      reinterpret_cast<double*>(data)[i] = value;
      return;
    case DataType::kFloat16:
      reinterpret_cast<uint16_t*>(data)[i] = SmallIntegerToHalf(value);
      return;
    case DataType::kBFloat16: {
      const float x = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      reinterpret_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
      return;
    }
    case DataType::kInt64:
      reinterpret_cast<int64_t*>(data)[i] = value;
      return;
    case DataType::kByte:
      data[i] = static_cast<std::byte>(value);
      return;
  }
}

// Different for each rank and place, small enough for exact sums in every type.
int Value(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 13) % 41) - 20; }

std::vector<std::byte> Filled(int rank, int64_t count, DataType type, int64_t from = 0) {
  const int64_t element = SizeOf(type), period = std::min<int64_t>(count, 41) * element;
  std::vector<std::byte> data(std::max<int64_t>(1, count * element));
  for (int64_t i = 0; i < std::min<int64_t>(count, 41); ++i) {
    Set(data.data(), i, type, Value(rank, from + i));
  }
  for (int64_t done = period; done < count * element;) {
    const int64_t next = std::min(done, count * element - done);
    std::memcpy(data.data() + done, data.data(), next);
    done += next;
  }
  return data;
}

double Expected(int size, int64_t i, DataType type, ReduceOp op) {
  int64_t sum = 0, most = -1000, least = 1000;
  for (int r = 0; r < size; ++r) {
    sum += Value(r, i);
    most = std::max<int64_t>(most, Value(r, i));
    least = std::min<int64_t>(least, Value(r, i));
  }
  if (op == ReduceOp::kMax) return static_cast<double>(most);
  if (op == ReduceOp::kMin) return static_cast<double>(least);
  if (op == ReduceOp::kSum) return static_cast<double>(sum);
  return type == DataType::kInt64 ? static_cast<double>(sum / size)
                                  : static_cast<double>(sum) / size;
}
double Tolerance(DataType type, ReduceOp op) {
  if (op != ReduceOp::kMean) return 0;
  if (type == DataType::kFloat16) return 0.02;
  if (type == DataType::kBFloat16) return 0.1;
  return type == DataType::kFloat32 ? 2e-6 : 0;
}

constexpr DataType kReducible[] = {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                   DataType::kBFloat16, DataType::kInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin};

// Every test runs with 1 to 5 ranks.
class Contract : public ::testing::TestWithParam<std::string> {
 protected:
  std::string backend() const { return GetParam(); }
  int size() const { return size_; }

  template <typename Body>
  void OnEverySize(Body&& body) {
    for (size_ = 1; size_ <= 5 && !HasFailure(); ++size_) {
      SCOPED_TRACE(std::to_string(size_) + " ranks");
      TestGroup group = MakeGroup(backend(), size());
      body(group);
    }
  }

  void CheckAllReduce(TestGroup& group, int64_t count, DataType type, ReduceOp op,
                      bool reducible = false) {
    std::vector<std::vector<std::byte>> results(size());
    OnEachRank(size(), [&](int rank) {
      std::vector<std::byte> data = Filled(rank, count, type);
      std::shared_ptr<void> shared;
      if (reducible) shared = group[rank].AllocateReducible(static_cast<int64_t>(data.size()));
      void* at = shared ? shared.get() : data.data();
      if (shared) std::memcpy(at, data.data(), data.size());
      const absl::Status status = group[rank].AllReduce({at, count, type}, op)->Wait();
      EXPECT_TRUE(status.ok()) << status;
      if (shared) std::memcpy(data.data(), at, data.size());
      results[rank] = std::move(data);
    });
    for (int rank = 1; rank < size(); ++rank) {
      ASSERT_TRUE(results[rank] == results[0]) << "rank " << rank << " holds other bits";
    }
    // The values have a period of 41: what is right in the first ones must repeat.
    const double tolerance = Tolerance(type, op);
    const int64_t element = SizeOf(type), period = 41 * element;
    if (count > 41) {
      ASSERT_EQ(
          std::memcmp(results[0].data(), results[0].data() + period, count * element - period), 0);
    }
    for (int64_t i = 0; i < std::min<int64_t>(count, 41); ++i) {
      ASSERT_NEAR(Get(results[0].data(), i, type), Expected(size(), i, type, op), tolerance)
          << backend() << " " << DataTypeName(type) << " " << ReduceOpName(op) << " at " << i
          << " of " << count;
    }
  }

 private:
  int size_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, Contract, ::testing::ValuesIn(testing::BackendNames()),
                         [](const auto& info) { return info.param; });

TEST_P(Contract, AllReduceOfEveryTypeOpAndSmallSize) {
  OnEverySize([&](TestGroup& group) {
    for (const DataType type : kReducible) {
      for (const ReduceOp op : kOps) {
        for (const int64_t count : {0, 1, 3, 127, 1031, 65'537})
          CheckAllReduce(group, count, type, op);
      }
    }
  });
}

TEST_P(Contract, AllReduceOfLargeBuffers) {
  OnEverySize([&](TestGroup& group) {
    CheckAllReduce(group, 10'000'000, DataType::kFloat32, ReduceOp::kSum);
    CheckAllReduce(group, 1'000'003, DataType::kBFloat16, ReduceOp::kMean);
  });
}

TEST_P(Contract, AllReduceInReducibleMemory) {
  OnEverySize([&](TestGroup& group) {
    for (const int64_t count : {1, 1031, 300'007}) {
      CheckAllReduce(group, count, DataType::kFloat32, ReduceOp::kMean, true);
    }
  });
}

TEST_P(Contract, AllReduceGivesTheSameBitsEveryTime) {
  OnEverySize([&](TestGroup& group) {
    const int64_t count = 40'001;
    std::vector<std::vector<float>> first;
    for (int round = 0; round < 2; ++round) {
      std::vector<std::vector<float>> data(size(), std::vector<float>(count));
      for (int rank = 0; rank < size(); ++rank) {
        std::mt19937 random(rank);
        for (float& x : data[rank]) x = std::normal_distribution<float>()(random);
      }
      OnEachRank(size(), [&](int rank) {
        Buffer buffer{data[rank].data(), count, DataType::kFloat32};
        EXPECT_TRUE(group[rank].AllReduce(buffer, ReduceOp::kSum)->Wait().ok());
      });
      for (int rank = 1; rank < size(); ++rank) {
        ASSERT_EQ(std::memcmp(data[rank].data(), data[0].data(), count * 4), 0);
      }
      if (round == 0) first = data;
      ASSERT_EQ(std::memcmp(data[0].data(), first[0].data(), count * 4), 0);
    }
  });
}

TEST_P(Contract, BroadcastOfEveryTypeFromEveryRank) {
  OnEverySize([&](TestGroup& group) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                DataType::kBFloat16, DataType::kInt64, DataType::kByte}) {
      for (const int64_t count : {0, 1, 1031, 200'003}) {
        for (int root = 0; root < size(); ++root) {
          const std::vector<std::byte> expected = Filled(root, count, type);
          OnEachRank(size(), [&](int rank) {
            std::vector<std::byte> data = Filled(rank, count, type);
            const absl::Status status =
                group[rank].Broadcast({data.data(), count, type}, root)->Wait();
            EXPECT_TRUE(status.ok()) << status;
            EXPECT_TRUE(data == expected);
          });
        }
      }
    }
  });
}

TEST_P(Contract, AllGatherAndReduceScatter) {
  OnEverySize([&](TestGroup& group) {
    for (const int64_t count : {0, 1, 259, 100'003}) {
      OnEachRank(size(), [&](int rank) {
        std::vector<std::byte> send = Filled(rank, count, DataType::kFloat32, rank * count);
        std::vector<float> all(size() * count + 1, -1);
        const Buffer receive{all.data(), size() * count, DataType::kFloat32};
        absl::Status status =
            group[rank].AllGather({send.data(), count, DataType::kFloat32}, receive)->Wait();
        EXPECT_TRUE(status.ok()) << status;
        for (int64_t i = 0; i < size() * count; ++i) {
          ASSERT_EQ(all[i], Value(static_cast<int>(i / count), i)) << i;
        }
        std::vector<std::byte> whole = Filled(rank, size() * count, DataType::kInt64);
        const std::vector<std::byte> before = whole;
        std::vector<int64_t> part(count + 1, -1);
        status = group[rank]
                     .ReduceScatter({whole.data(), size() * count, DataType::kInt64},
                                    {part.data(), count, DataType::kInt64}, ReduceOp::kMean)
                     ->Wait();
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(whole, before) << "what is sent is only read";
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(part[i], static_cast<int64_t>(Expected(size(), rank * count + i,
                                                           DataType::kInt64, ReduceOp::kMean)));
        }
      });
    }
  });
}

TEST_P(Contract, BarrierLetsNobodyThroughEarly) {
  OnEverySize([&](TestGroup& group) {
    std::atomic<int> come{0};
    for (int round = 1; round <= 20; ++round) {
      OnEachRank(size(), [&](int rank) {
        come.fetch_add(1);
        EXPECT_TRUE(group[rank].Barrier()->Wait().ok());
        EXPECT_GE(come.load(), round * size());
      });
    }
  });
}

TEST_P(Contract, ManyOperationsAreIssuedAheadAndKeepTheirOrder) {
  OnEverySize([&](TestGroup& group) {
    OnEachRank(size(), [&](int rank) {
      std::vector<std::vector<float>> data;
      std::vector<WorkPtr> works;
      for (int i = 0; i < 30; ++i) data.emplace_back(1 + i * 577, static_cast<float>(rank + i));
      for (auto& d : data) {
        works.push_back(group[rank].AllReduce(
            {d.data(), static_cast<int64_t>(d.size()), DataType::kFloat32}, ReduceOp::kMax));
      }
      EXPECT_TRUE(works.back()->Wait().ok());
      for (int i = 0; i < 30; ++i) {
        EXPECT_TRUE(works[i]->Wait().ok());
        EXPECT_TRUE(works[i]->Done());
        EXPECT_EQ(data[i].back(), static_cast<float>(size() - 1 + i));
      }
    });
  });
}

// What goes wrong. The others of a group must not hang, and must be told whom to blame.
class Failure : public ::testing::TestWithParam<std::string> {
 protected:
  // The names by which this backend calls a rank.
  static std::string Name(int rank) {
    return GetParam().starts_with("replicas") ? "" : "rank " + std::to_string(rank);
  }
};

INSTANTIATE_TEST_SUITE_P(All, Failure, ::testing::ValuesIn(testing::BackendNames()),
                         [](const auto& info) { return info.param; });

std::vector<absl::Status> EachAllReduces(TestGroup& group, const std::vector<int>& ranks,
                                         const std::function<Buffer(int rank)>& buffer,
                                         ReduceOp op = ReduceOp::kSum) {
  std::vector<absl::Status> statuses(group.size());
  OnEachRank(group.size(), [&](int rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
    statuses[rank] = group[rank].AllReduce(buffer(rank), op)->Wait();
  });
  return statuses;
}

TEST_P(Failure, SizesThatDifferAreNamedNotHung) {
  for (const int64_t count : {10, 50'000}) {
    TestGroup group = MakeGroup(GetParam(), 4);
    std::vector<std::vector<float>> data(4, std::vector<float>(count + 1));
    const auto statuses = EachAllReduces(group, {0, 1, 2, 3}, [&](int rank) {
      return Buffer{data[rank].data(), count + (rank == 2), DataType::kFloat32};
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
      EXPECT_THAT(std::string(Message(status)), HasSubstr(std::to_string(count + 1)));
      EXPECT_THAT(std::string(Message(status)), HasSubstr(std::to_string(count) + ", sum"));
      EXPECT_THAT(std::string(Message(status)), HasSubstr(Name(2)));
    }
  }
}

TEST_P(Failure, TypesOpsAndVerbsThatDifferAreNamed) {
  for (int what = 0; what < 3; ++what) {
    TestGroup group = MakeGroup(GetParam(), 3);
    std::vector<std::vector<double>> data(3, std::vector<double>(5000));
    OnEachRank(3, [&](int rank) {
      Communicator& c = group[rank];
      Buffer buffer{data[rank].data(), 5000, DataType::kFloat32};
      if (rank == 1 && what == 0) buffer.type = DataType::kFloat64;
      const ReduceOp op = rank == 1 && what == 1 ? ReduceOp::kMean : ReduceOp::kSum;
      const WorkPtr work =
          rank == 1 && what == 2 ? c.Broadcast(buffer, 0) : c.AllReduce(buffer, op);
      const absl::Status status = work->Wait();
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
      static const char* const kOdd[] = {"float64", "mean", "broadcast"};
      EXPECT_THAT(std::string(Message(status)), HasSubstr(kOdd[what]));
      EXPECT_THAT(std::string(Message(status)), HasSubstr("all_reduce(float32 x 5000, sum)"));
    });
  }
}

// Seen from a process, what its replicas ask for may look like another process's operation.
TEST(Replicas, ProcessesWhoseReplicasAskForDifferentThingsAreNamed) {
  struct Case {
    std::function<WorkPtr(Communicator&, std::vector<double>&)> first, second;
    std::vector<std::string> says;
  };
  const auto all_reduce = [](ReduceOp op) {
    return [op](Communicator& c, std::vector<double>& data) {
      return c.AllReduce({data.data(), 4000, DataType::kFloat64}, op);
    };
  };
  const auto broadcast = [](int root) {
    return [root](Communicator& c, std::vector<double>& data) {
      return c.Broadcast({data.data(), 4000, DataType::kFloat64}, root);
    };
  };
  const auto scatter = [](Communicator& c, std::vector<double>& data) {
    return c.ReduceScatter({data.data(), 4000, DataType::kFloat64},
                           {data.data() + 4000, 1000, DataType::kFloat64}, ReduceOp::kSum);
  };
  for (const Case& with : std::vector<Case>{
           {all_reduce(ReduceOp::kSum), all_reduce(ReduceOp::kMean), {"all_reduce(mean)", "sum"}},
           {broadcast(0), broadcast(1), {"from replica 0", "from replica 1"}},
           {all_reduce(ReduceOp::kSum), scatter, {"all_reduce(float64", "reduce_scatter(sum)"}}}) {
    for (const char* backend : {"replicas", "replicas_tcp"}) {
      TestGroup group = MakeGroup(backend, 4);
      OnEachRank(4, [&](int rank) {
        std::vector<double> data(5000);
        const auto& issue = rank < 2 ? with.first : with.second;
        const absl::Status status = issue(group[rank], data)->Wait();
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
        for (const std::string& part : with.says)
          EXPECT_THAT(std::string(Message(status)), HasSubstr(part));
        EXPECT_THAT(std::string(Message(status)), HasSubstr("worker:0"));
        EXPECT_THAT(std::string(Message(status)), HasSubstr("worker:1"));
      });
    }
  }
}

TEST_P(Failure, ARankThatNeverComesIsNamed) {
  for (const int absent : {0, 2}) {
    TestGroup group = MakeGroup(GetParam(), 4, {.timeout = std::chrono::milliseconds(1500)});
    std::vector<std::vector<float>> data(4, std::vector<float>(1000));
    std::vector<int> ranks = {0, 1, 2, 3};
    ranks.erase(ranks.begin() + absent);
    const auto statuses = EachAllReduces(group, ranks, [&](int rank) {
      return Buffer{data[rank].data(), 1000, DataType::kFloat32};
    });
    for (const int rank : ranks) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[rank])) << rank << ": " << statuses[rank];
      if (Name(0).empty()) continue;  // replicas name the process
      const std::string message(Message(statuses[rank]));
      EXPECT_THAT(message, HasSubstr(Name(absent) + " "));
      EXPECT_THAT(message, HasSubstr("did not come to all_reduce(float32 x 1000, sum)"));
      for (const int other : ranks) EXPECT_THAT(message, Not(HasSubstr(Name(other) + " ")));
    }
  }
}

TEST_P(Failure, AbortFromAnotherThreadEndsTheWaitAtOnceAndPoisons) {
  TestGroup group = MakeGroup(GetParam(), 3);
  std::vector<std::vector<float>> data(3, std::vector<float>(1'000'000));
  std::atomic<int> waiting{0};
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const WorkPtr work =
          group[rank].AllReduce({data[rank].data(), 1'000'000, DataType::kFloat32}, ReduceOp::kSum);
      ++waiting;
      statuses[rank] = work->Wait();
    });
  }
  while (waiting < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // well inside the wait
  const MonotonicTime before = Clock::now();
  for (int rank = 0; rank < 3; ++rank) group[rank].Abort(PeerLost("worker 7 was lost"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Seconds(Clock::now() - before), 10.0) << "not by the deadline of 20 s";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(std::string(Message(statuses[rank])), HasSubstr("worker 7 was lost"));
    EXPECT_THAT(std::string(Message(group[rank].status())), HasSubstr("worker 7 was lost"));
    const absl::Status later =
        group[rank].AllReduce({data[rank].data(), 1, DataType::kFloat32}, ReduceOp::kSum)->Wait();
    EXPECT_EQ(later, group[rank].status()) << "poisoned for good";
  }
}

TEST_P(Failure, OneRankThatGivesUpWakesTheOthers) {
  TestGroup group = MakeGroup(GetParam(), 3);
  std::vector<std::vector<float>> data(3, std::vector<float>(100'000));
  std::thread quitter([&] { group[2].Abort(PeerLost("worker 7 was lost")); });
  const auto statuses = EachAllReduces(group, {0, 1}, [&](int rank) {
    return Buffer{data[rank].data(), 100'000, DataType::kFloat32};
  });
  quitter.join();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(absl::IsUnavailable(statuses[rank])) << statuses[rank];
    EXPECT_THAT(std::string(Message(statuses[rank])), HasSubstr("worker 7 was lost"));
  }
}

TEST_P(Failure, ARankThatIsDestroyedWakesTheOthers) {
  TestGroup group = MakeGroup(GetParam(), 3);
  std::vector<std::vector<float>> data(3, std::vector<float>(100'000));
  group.ranks[1].reset();
  const auto statuses = EachAllReduces(group, {0, 2}, [&](int rank) {
    return Buffer{data[rank].data(), 100'000, DataType::kFloat32};
  });
  for (const int rank : {0, 2}) EXPECT_TRUE(absl::IsUnavailable(statuses[rank])) << statuses[rank];
}

TEST_P(Failure, ACallThatCannotBeCarriedOutFailsEverybody) {
  TestGroup group = MakeGroup(GetParam(), 2);
  std::vector<float> data(100);
  OnEachRank(2, [&](int rank) {
    const DataType type = rank == 0 ? DataType::kByte : DataType::kFloat32;
    const absl::Status status =
        group[rank].AllReduce({data.data() + rank * 50, 50, type}, ReduceOp::kSum)->Wait();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("Bytes cannot be reduced"));
  });
}

}  // namespace
}  // namespace muster
