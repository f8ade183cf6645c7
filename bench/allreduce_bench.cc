// All-reduce of float32 between two forked processes of one host: gloo's ring over loopback, and
// this tree's TCP ring and shared memory (with and without memory that needs no copy), in one run.
//
//   allreduce_bench [megabytes...]      default 1.4 22
//
// Rounds of all candidates alternate, so that a noisy neighbour hits all of them; the best round's
// median is reported. Ranks are pinned to one core each; operations run inside Wait, and on a
// progress thread for comparison.
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "common/collective/group/formation.h"
#include "common/transport/listener/data_listener.h"

namespace muster {
namespace {

using collective::Backend;
using collective::Communicator;

constexpr int kRounds = 7, kWarmUp = 3;

struct Candidate {
  std::string name;
  float* data;
  std::function<void(float* data, int64_t count)> all_reduce;
  double best_ms = 1e9;
};

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::shared_ptr<gloo::Context> ConnectGloo(int rank, const std::string& folder) {
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  context->connectFullMesh(store, device);
  return context;
}

void GlooAllReduce(const std::shared_ptr<gloo::Context>& context, float* data, int64_t count) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data, count);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setReduceFunction([](void* out, const void* a, const void* b, size_t n) {
    auto* to = static_cast<float*>(out);
    const auto *x = static_cast<const float*>(a), *y = static_cast<const float*>(b);
    for (size_t i = 0; i < n; ++i) to[i] = x[i] + y[i];
  });
  gloo::allreduce(options);
}

// Both processes learn both addresses through pipes.
std::vector<std::string> Swap(const std::string& mine, int rank, const int (&pipes)[2][2]) {
  char text[64] = "";
  std::snprintf(text, sizeof text, "%s", mine.c_str());
  if (write(pipes[rank][1], text, sizeof text) != sizeof text) std::abort();
  char other[64];
  if (read(pipes[1 - rank][0], other, sizeof other) != sizeof other) std::abort();
  return rank == 0 ? std::vector<std::string>{text, other} : std::vector<std::string>{other, text};
}

std::unique_ptr<Communicator> Form(transport::DataListener& listener,
                                   const std::vector<std::string>& addresses, int rank,
                                   uint64_t generation, Backend backend, bool progress) {
  collective::GroupSpec spec;
  spec.generation = generation;
  spec.rank = rank;
  for (const std::string& address : addresses) spec.members.push_back({"bench", "host", address});
  spec.ticket = "benchmark ticket";
  spec.backend = backend;
  spec.spin = true;
  spec.progress_thread = progress;
  auto formed = collective::FormGroup(spec, listener, nullptr);
  if (!formed.ok()) {
    fmt::print(stderr, "allreduce_bench: {}\n", Message(formed.status()));
    std::exit(1);
  }
  return *std::move(formed);
}

double MedianMs(Candidate& candidate, int64_t count, int iterations, Communicator& barrier) {
  std::vector<double> ms;
  for (int i = 0; i < kWarmUp + iterations; ++i) {
    (void)barrier.Barrier()->Wait();
    const auto start = Clock::now();
    candidate.all_reduce(candidate.data, count);
    if (i >= kWarmUp) ms.push_back(Seconds(Clock::now() - start) * 1e3);
  }
  std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
  return ms[ms.size() / 2];
}

void Report(const std::vector<Candidate>& candidates, double megabytes) {
  fmt::print("\nall-reduce of {} MB, 2 processes, pinned\n", megabytes);
  for (const Candidate& c : candidates) {
    fmt::print("  {:<44} {:8.3f} ms   {:5.2f} x gloo's speed\n", c.name, c.best_ms,
               candidates[0].best_ms / c.best_ms);
  }
  std::fflush(stdout);
}

int RunRank(int rank, const int (&pipes)[2][2], const std::string& folder,
            const std::vector<double>& sizes) {
  auto listener = transport::DataListener::Create({.bind_address = "127.0.0.1"});
  if (!listener.ok()) return 1;
  const auto addresses = Swap((*listener)->address(), rank, pipes);
  const auto gloo = ConnectGloo(rank, folder);
  Pin(rank % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  auto tcp = Form(**listener, addresses, rank, 1, Backend::kTcp, false);
  auto shm = Form(**listener, addresses, rank, 2, Backend::kSharedMemory, false);
  auto tcp_progress = Form(**listener, addresses, rank, 3, Backend::kTcp, true);
  auto shm_progress = Form(**listener, addresses, rank, 4, Backend::kSharedMemory, true);
  auto over = [](Communicator& c) {
    return [&c](float* data, int64_t count) {
      const absl::Status status =
          c.AllReduce({data, count, collective::DataType::kFloat32}, ReduceOp::kSum)->Wait();
      if (!status.ok()) {
        fmt::print(stderr, "allreduce_bench: {}\n", Message(status));
        std::_Exit(1);
      }
    };
  };
  for (const double megabytes : sizes) {
    const auto count = static_cast<int64_t>(megabytes * 250'000);
    std::vector<float> own(count, 1.f);
    const std::shared_ptr<void> shared = shm->AllocateReducible(count * 4);
    if (shared == nullptr) {
      fmt::print(stderr, "allreduce_bench: /dev/shm has no room for {} MB\n", megabytes);
      return 1;
    }
    std::vector<Candidate> candidates = {
        {"gloo, ring over loopback", own.data(),
         [&](float* data, int64_t n) { GlooAllReduce(gloo, data, n); }},
        {"TCP ring", own.data(), over(*tcp)},
        {"TCP ring, progress thread", own.data(), over(*tcp_progress)},
        {"shared memory", own.data(), over(*shm)},
        {"shared memory, progress thread", own.data(), over(*shm_progress)},
        {"shared memory, AllocateReducible", static_cast<float*>(shared.get()), over(*shm)}};
    const int iterations = std::clamp(static_cast<int>(200 / megabytes), 9, 60);
    for (int round = 0; round < kRounds; ++round) {
      for (Candidate& candidate : candidates) {
        std::fill(candidate.data, candidate.data + count, 0.f);  // sums must not overflow
        const double ms = MedianMs(candidate, count, iterations, *shm);
        candidate.best_ms = std::min(candidate.best_ms, ms);
      }
    }
    if (rank == 0) Report(candidates, megabytes);
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  std::vector<double> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {1.4, 22};
  std::string folder =
      (std::filesystem::temp_directory_path() / "muster-allreduce-bench-XXXXXX").string();
  int pipes[2][2];
  if (mkdtemp(folder.data()) == nullptr || pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) {
    std::perror("allreduce_bench");
    return 1;
  }
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) std::_Exit(muster::RunRank(rank, pipes, folder, sizes));
  }
  int failures = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failures += status != 0;
  }
  std::filesystem::remove_all(folder);
  return failures == 0 ? 0 : 1;
}
