// checkpoint_bench FOLDER [MB] [TURNS]: measures the rate of writing and reading a checkpoint,
// compared with the disk's own sequential rate: the same bytes by plain write(2) of 1 MB and one
// fdatasync, in turns on the same disk. FOLDER selects the disk; its files are removed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/files/crc32c.h"
#include "common/checkpoint/store.h"

namespace muster::checkpoint {
namespace {

struct Cost {
  double wall = 0, cpu = 0;  // seconds
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename F>
Cost Measure(const F& act) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  act();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {wall.count(), CpuSeconds() - cpu};
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "checkpoint_bench: {}\n", Message(status));
  std::exit(1);
}

// A model and Adam's two slots, of a few hundred tensors.
Snapshot MakeSnapshot(size_t bytes) {
  // Aligned for O_DIRECT.
  const std::shared_ptr<char[]> memory(static_cast<char*>(std::aligned_alloc(4096, bytes)),
                                       std::free);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, memory.get() + i);
  }
  Snapshot snapshot;
  size_t at = 0;
  const auto fill = [&](TensorSet* set, size_t share, const char* suffix) {
    set->memory = memory;
    constexpr int kTensors = 100;
    for (int i = 0; i < kTensors; ++i) {
      const auto elements = static_cast<int64_t>(share / kTensors / 4);
      set->tensors.push_back(
          {{fmt::format("layer{}.weight{}", i, suffix), DType::kFloat32, {elements}},
           memory.get() + at});
      at += set->tensors.back().bytes();
    }
  };
  fill(&snapshot.model, bytes / 3, "");
  fill(&snapshot.optimizer, bytes / 3, ".exp_avg");
  fill(&snapshot.optimizer, bytes / 3, ".exp_avg_sq");
  return snapshot;
}

void PlainWrite(const std::string& path, const char* data, size_t bytes, int flags, size_t piece) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | flags, 0600);
  bool good = fd >= 0;
  for (size_t at = 0; at < bytes && good;) {
    const ssize_t n = write(fd, data + at, std::min(piece, bytes - at));
    good = n > 0;
    at += good ? static_cast<size_t>(n) : 0;
  }
  good = good && fdatasync(fd) == 0;
  if (fd >= 0) close(fd);
  Check(good ? absl::OkStatus() : absl::InternalError("cannot write " + path));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Report(const char* what, const std::vector<Cost>& costs, double megabytes) {
  std::vector<double> rates, cpu;
  for (const Cost& cost : costs) rates.push_back(megabytes / cost.wall), cpu.push_back(cost.cpu);
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  fmt::print("{:<24} {:6.0f} MB/s ({:.0f} to {:.0f}), {:.3f} s of CPU\n", what, Median(rates), *low,
             *high, Median(cpu));
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: checkpoint_bench FOLDER [MB] [TURNS]\n");
    return 2;
  }
  const size_t bytes = (argc > 2 ? std::stoul(argv[2]) : 400) << 20;
  const int turns = argc > 3 ? std::stoi(argv[3]) : 7;
  const double megabytes = static_cast<double>(bytes) / 1e6;
  FileSystem& files = PosixFileSystem();
  const std::string folder = fmt::format("{}/checkpoint_bench.{}", argv[1], getpid());
  Check(MakeDirectories(files, folder));
  Snapshot snapshot = MakeSnapshot(bytes);
  const char* const data = snapshot.model.tensors[0].data;
  auto store = Store::Open(files, {folder + "/checkpoints", "bench", 1, {}}, -1);
  Check(store.status());

  std::vector<Cost> plain, direct, saved, read, checksum;
  std::vector<double> ratios;
  const auto save = [&] {
    ++snapshot.state.step;
    sync();  // what others left for the disk to do is done
    return Measure([&] { Check((*store)->Write(snapshot).status()); });
  };
  const auto write = [&](int flags, size_t piece) {
    sync();
    const Cost cost = Measure([&] { PlainWrite(folder + "/plain", data, bytes, flags, piece); });
    Check(files.Remove(folder + "/plain"));
    return cost;
  };
  for (int turn = 0; turn <= turns; ++turn) {
    const Cost a = write(0, 1 << 20), b = save(), c = write(O_DIRECT, 8 << 20);
    if (turn == 0) continue;  // warms up
    plain.push_back(a), saved.push_back(b), direct.push_back(c);
    ratios.push_back(std::min(a.wall, c.wall) / b.wall);
    read.push_back(Measure([&] {
      std::vector<std::string> damaged;
      Check(ReadNewest(files, folder + "/checkpoints", &damaged).status());
    }));
    uint32_t sum = 0;
    checksum.push_back(Measure([&] { sum = Crc32c({data, bytes}); }));
    if (sum == 0) fmt::print("\n");
  }
  fmt::print("{} turns of {:.0f} MB, medians\n", turns, megabytes);
  Report("write and fdatasync", plain, megabytes);
  Report("past the page cache", direct, megabytes);
  Report("checkpoint", saved, megabytes);
  fmt::print("{:<24} {:6.2f} ({:.2f} to {:.2f})\n", "of the faster of both", Median(ratios),
             *std::min_element(ratios.begin(), ratios.end()),
             *std::max_element(ratios.begin(), ratios.end()));
  Report("reading it (cached)", read, megabytes);
  Report("CRC-32C", checksum, megabytes);
  store->reset();
  Check(files.Remove(folder));
  return 0;
}

}  // namespace
}  // namespace muster::checkpoint

int main(int argc, char** argv) { return muster::checkpoint::Main(argc, argv); }
