// Real NCCL ranks, processes of their own, on one GPU or on one each; and the same processes
// without NCCL, so that what the tests do besides is seen to work on hosts without a GPU too.
//
// NCCL tells GPUs apart by host and bus: where ranks share a GPU, NCCL_HOSTID says that their hosts
// differ, and they are linked by the loopback interface.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/core/Device.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <new>
#include <ostream>

#include "common/collective/nccl/nccl.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/collective/processes.h"

namespace muster::testing {

// What a child ends with.
constexpr int kRight = 0, kWrong = 1, kNoGpu = 77;

struct RankLayout {
  const char* name;
  int ranks;
  int gpus;  // 0: on the CPU, without NCCL
};
inline void PrintTo(const RankLayout& layout, std::ostream* out) { *out << layout.name; }

constexpr RankLayout kOneRank{"OneRank", 1, 1}, kTwoOnOne{"TwoRanksOnOneGpu", 2, 1},
    kTwoOnTwo{"TwoRanksOnTwoGpus", 2, 2}, kTwoOnCpu{"TwoRanksOnTheCpu", 2, 0};

// In the child: CUDA must not have been touched before the fork. Ends the process where the host
// has too few GPUs.
inline c10::Device DeviceOf(const RankLayout& layout, int rank) {
  if (layout.gpus == 0) return {at::kCPU};
  if (at::cuda::device_count() < layout.gpus) std::_Exit(kNoGpu);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(rank % layout.gpus)};
}

inline absl::StatusOr<std::unique_ptr<Communicator>> Join(const RankLayout& layout, int rank,
                                                          transport::DataListener& listener,
                                                          const Addresses& addresses,
                                                          Duration timeout) {
  const c10::Device device = DeviceOf(layout, rank);
  if (layout.gpus < layout.ranks) {
    setenv("NCCL_HOSTID", fmt::format("host{}", rank).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
  }
  GroupSpec spec;
  spec.generation = 1;
  spec.rank = rank;
  spec.ticket = "0123456789abcdef";
  spec.backend = Backend::kTcp;
  spec.operation_timeout = timeout;
  for (size_t i = 0; i < addresses.size(); ++i)
    spec.members.push_back({fmt::format("worker:{}", i), "host", addresses[i], 1});
  auto group = FormGroup(spec, listener, [] { return false; });
  if (!group.ok() || layout.gpus == 0) return group;
  const std::vector<int> each(layout.ranks, 1);
  auto made = MakeNcclCommunicators(*std::move(group), each,
                                    {.devices = {device.index()}, .timeout = timeout},
                                    [] { return false; });
  if (!made.ok()) return made.status();
  return std::move((*made)[0]);
}

inline int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return kWrong;
}
// For what a child expects with GoogleTest's macros.
inline int CodeOfExpectations() { return ::testing::Test::HasFailure() ? kWrong : kRight; }

// A counter that children share.
class SharedCount {
 public:
  SharedCount() {
    void* page =
        mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page, MAP_FAILED);
    count_ = new (page) Count(0);
  }
  ~SharedCount() { munmap(count_, sizeof(Count)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<int>& operator*() { return *count_; }

 private:
  using Count = std::atomic<int>;
  Count* count_ = nullptr;
};

class RanksTest : public ::testing::Test {
 protected:
  // The exit code of `rank`; leaves the test where the host has too few GPUs.
  void Expect(Processes& processes, const RankLayout& layout, int rank) {
    const int code = processes.Join(rank);
    MUSTER_NEEDS_GPUS(code == kNoGpu, layout.gpus,
                      "this host has fewer than " << layout.gpus << " CUDA devices");
    EXPECT_EQ(code, kRight) << "rank " << rank;
  }
  void ExpectAll(Processes& processes, const RankLayout& layout) {
    for (int rank = 0; rank < layout.ranks && !IsSkipped(); ++rank) Expect(processes, layout, rank);
  }
};

}  // namespace muster::testing
