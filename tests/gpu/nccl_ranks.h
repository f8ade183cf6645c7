// Ranks with real NCCL. Each rank is a process. All ranks share one GPU, or each has its own. The
// same processes also run on the CPU without NCCL, which tests the rest on hosts without a GPU.
//
// NCCL refuses two ranks with the same host and bus. Ranks that share a GPU therefore have
// different values of NCCL_HOSTID, and communicate over the loopback interface.
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

// The exit codes of a child.
constexpr int kRight = 0, kWrong = 1, kNoGpu = 77;

struct RankLayout {
  const char* name;
  int ranks;
  int gpus;  // 0: the ranks run on the CPU, without NCCL.
};
inline void PrintTo(const RankLayout& layout, std::ostream* out) { *out << layout.name; }

constexpr RankLayout kOneRank{"OneRank", 1, 1}, kTwoOnOne{"TwoRanksOnOneGpu", 2, 1},
    kTwoOnTwo{"TwoRanksOnTwoGpus", 2, 2}, kTwoOnCpu{"TwoRanksOnTheCpu", 2, 0};

// Returns the device of a rank. Only the child may call it, because CUDA must not be used before
// the fork. Ends the process with kNoGpu if the host has too few GPUs.
inline c10::Device DeviceOf(const RankLayout& layout, int rank) {
  if (layout.gpus == 0) return {at::kCPU};
  if (at::cuda::device_count() < layout.gpus) std::_Exit(kNoGpu);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(rank % layout.gpus)};
}

inline absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(
    const RankLayout& layout, int rank, transport::DataListener& listener,
    const Addresses& addresses, Duration timeout) {
  const c10::Device device = DeviceOf(layout, rank);
  if (layout.gpus < layout.ranks) {
    setenv("NCCL_HOSTID", fmt::format("host{}", rank).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
  }
  collective::GroupSpec spec;
  spec.generation = 1;
  spec.rank = rank;
  spec.ticket = "0123456789abcdef";
  spec.backend = collective::Backend::kTcp;
  spec.operation_timeout = timeout;
  for (size_t i = 0; i < addresses.size(); ++i)
    spec.members.push_back({fmt::format("worker:{}", i), "host", addresses[i], 1});
  auto group = collective::FormGroup(spec, listener, [] { return false; });
  if (!group.ok() || layout.gpus == 0) return group;
  const std::vector<int> each(layout.ranks, 1);
  auto made = collective::MakeNcclCommunicators(*std::move(group), each,
                                                {.devices = {device.index()}, .timeout = timeout},
                                                [] { return false; });
  if (!made.ok()) return made.status();
  return std::move((*made)[0]);
}

inline int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return kWrong;
}
// Returns a child's exit code after its GoogleTest expectations.
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
  // Waits for the process of `rank` and expects kRight. Skips the test if the host has too few
  // GPUs.
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
