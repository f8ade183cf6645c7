// The contract of working communicators: results against a plain reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/collective/contract.h"

namespace muster::testing {
namespace {

using collective::DataType;

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
  const int64_t element = collective::SizeOf(type), period = std::min<int64_t>(count, 41) * element;
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

// Like ==, which is slow because it compares each std::byte.
bool Same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
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

void ExpectOk(const collective::WorkPtr& work) {
  const absl::Status status = work->Wait();
  EXPECT_TRUE(status.ok()) << status;
}

// All ranks hold these bits.
void ExpectSameEverywhere(ContractRank& rank, const std::vector<std::byte>& mine) {
  const auto* text = reinterpret_cast<const char*>(mine.data());
  const size_t hash = std::hash<std::string_view>{}({text, mine.size()});
  const Placed sent(rank, &hash, sizeof hash);
  const Placed all = Zeros(rank, rank.size, DataType::kInt64);
  ExpectOk(rank.communicator->AllGather(sent.As(1, DataType::kInt64),
                                        all.As(rank.size, DataType::kInt64)));
  const std::vector<std::byte> hashes = all.Read();
  for (int r = 0; r < rank.size; ++r) {
    EXPECT_EQ(std::memcmp(hashes.data() + r * sizeof hash, &hash, sizeof hash), 0)
        << "rank " << r << " holds other bits than rank " << rank.rank;
  }
}

void CheckAllReduce(ContractRank& rank, int64_t count, DataType type, ReduceOp op,
                    bool reducible = false) {
  std::vector<std::byte> data = Filled(rank.rank, count, type);
  const auto bytes = static_cast<int64_t>(data.size());
  const std::shared_ptr<void> shared =
      reducible ? rank.communicator->AllocateReducible(bytes) : nullptr;
  if (shared) {
    std::memcpy(shared.get(), data.data(), data.size());
    ExpectOk(rank.communicator->AllReduce({shared.get(), count, type}, op));
    std::memcpy(data.data(), shared.get(), data.size());
  } else {
    const Placed placed(rank, data);
    ExpectOk(rank.communicator->AllReduce(placed.As(count, type), op));
    data = placed.Read();
  }
  ExpectSameEverywhere(rank, data);
  // The values have a period of 41: what is right in the first ones must repeat.
  const int64_t element = collective::SizeOf(type), period = 41 * element;
  if (count > 41) {
    ASSERT_EQ(std::memcmp(data.data(), data.data() + period, count * element - period), 0);
  }
  for (int64_t i = 0; i < std::min<int64_t>(count, 41); ++i) {
    ASSERT_NEAR(Get(data.data(), i, type), Expected(rank.size, i, type, op), Tolerance(type, op))
        << collective::DataTypeName(type) << " " << collective::ReduceOpName(op) << " at " << i
        << " of " << count;
  }
}

void AllReduceOfEveryTypeOpAndSmallSize(ContractRank& rank) {
  for (const DataType type : kReducible) {
    for (const ReduceOp op : kOps) {
      for (const int64_t count : {0, 1, 3, 127, 1031, 65'537}) {
        CheckAllReduce(rank, count, type, op);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

void AllReduceOfLargeBuffers(ContractRank& rank) {
  CheckAllReduce(rank, 2'500'001, DataType::kFloat32, ReduceOp::kSum);
  CheckAllReduce(rank, 1'000'003, DataType::kBFloat16, ReduceOp::kMean);
}

void AllReduceInReducibleMemory(ContractRank& rank) {
  for (const int64_t count : {1, 1031, 300'007})
    CheckAllReduce(rank, count, DataType::kFloat32, ReduceOp::kMean, /*reducible=*/true);
}

void AllReduceGivesTheSameBitsEveryTime(ContractRank& rank) {
  const int64_t count = 40'001;
  std::vector<std::byte> first;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> data(count);
    std::mt19937 random(rank.rank);
    for (float& x : data) x = std::normal_distribution<float>()(random);
    const Placed placed(rank, data.data(), count * 4);
    ExpectOk(rank.communicator->AllReduce(placed.As(count, DataType::kFloat32), ReduceOp::kSum));
    const std::vector<std::byte> result = placed.Read();
    ExpectSameEverywhere(rank, result);
    if (round == 0) first = result;
    EXPECT_TRUE(Same(result, first));
  }
}

void BroadcastOfEveryTypeFromEveryRank(ContractRank& rank) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                              DataType::kBFloat16, DataType::kInt64, DataType::kByte}) {
    for (const int64_t count : {0, 1, 1031, 200'003}) {
      for (int root = 0; root < rank.size; ++root) {
        const Placed data(rank, Filled(rank.rank, count, type));
        ExpectOk(rank.communicator->Broadcast(data.As(count, type), root));
        ASSERT_TRUE(Same(data.Read(), Filled(root, count, type)));
      }
    }
  }
}

void AllGatherAndReduceScatter(ContractRank& rank) {
  for (const int64_t count : {0, 1, 259, 100'003}) {
    const int64_t total = rank.size * count;
    const Placed send(rank, Filled(rank.rank, count, DataType::kFloat32, rank.rank * count));
    const Placed all = Zeros(rank, total, DataType::kFloat32);
    ExpectOk(rank.communicator->AllGather(send.As(count, DataType::kFloat32),
                                          all.As(total, DataType::kFloat32)));
    const std::vector<std::byte> gathered = all.Read();
    for (int64_t i = 0; i < total; ++i) {
      ASSERT_EQ(Get(gathered.data(), i, DataType::kFloat32), Value(static_cast<int>(i / count), i))
          << i;
    }
    const std::vector<std::byte> before = Filled(rank.rank, total, DataType::kInt64);
    const Placed whole(rank, before), part = Zeros(rank, count, DataType::kInt64);
    ExpectOk(rank.communicator->ReduceScatter(whole.As(total, DataType::kInt64),
                                              part.As(count, DataType::kInt64), ReduceOp::kMean));
    EXPECT_TRUE(Same(whole.Read(), before)) << "what is sent is only read";
    const std::vector<std::byte> scattered = part.Read();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(Get(scattered.data(), i, DataType::kInt64),
                Expected(rank.size, rank.rank * count + i, DataType::kInt64, ReduceOp::kMean));
    }
  }
}

void BarrierLetsNobodyThroughEarly(ContractRank& rank) {
  for (int round = 1; round <= 20; ++round) {
    rank.count.fetch_add(1);
    ExpectOk(rank.communicator->Barrier());
    EXPECT_GE(rank.count.load(), round * rank.size);
  }
}

void ManyOperationsAreIssuedAheadAndKeepTheirOrder(ContractRank& rank) {
  std::vector<Placed> data;
  std::vector<collective::WorkPtr> works;
  const auto length = [](int i) { return 1 + i * 577; };
  for (int i = 0; i < 30; ++i) {
    const std::vector<float> values(length(i), static_cast<float>(rank.rank + i));
    data.emplace_back(rank, values.data(), length(i) * 4);
  }
  for (int i = 0; i < 30; ++i) {
    works.push_back(
        rank.communicator->AllReduce(data[i].As(length(i), DataType::kFloat32), ReduceOp::kMax));
  }
  ExpectOk(works.back());
  for (int i = 0; i < 30; ++i) {
    ExpectOk(works[i]);
    EXPECT_TRUE(works[i]->Done());
    EXPECT_EQ(Get(data[i].Read().data(), length(i) - 1, DataType::kFloat32), rank.size - 1 + i);
  }
}

}  // namespace

const std::vector<ContractCase>& ContractCases() {
#define MUSTER_CASE(name) \
  { #name, name }
  static const std::vector<ContractCase> cases = {
      MUSTER_CASE(AllReduceOfEveryTypeOpAndSmallSize),
      MUSTER_CASE(AllReduceOfLargeBuffers),
      MUSTER_CASE(AllReduceInReducibleMemory),
      MUSTER_CASE(AllReduceGivesTheSameBitsEveryTime),
      MUSTER_CASE(BroadcastOfEveryTypeFromEveryRank),
      MUSTER_CASE(AllGatherAndReduceScatter),
      MUSTER_CASE(BarrierLetsNobodyThroughEarly),
      MUSTER_CASE(ManyOperationsAreIssuedAheadAndKeepTheirOrder)};
#undef MUSTER_CASE
  return cases;
}

}  // namespace muster::testing
