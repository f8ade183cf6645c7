// What a parameter server's data path costs, against a bound measured in the same run.
//
//   parameter_server_bench [MB]      default 22
//
// Dense: one worker pushes and pulls MB of float32 to and from one server, a process of its own,
// over TCP on loopback, SGD on the server. The bound is the same bytes over the same kind of
// connection with a plain loop that applies SGD as they arrive, without chunks, checks, or locks.
// Embedding: one table of this process, batches of random keys, dimension 16; the bound is a copy
// of as many rows in random order.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "common/push_pull/embedding_table.h"
#include "common/push_pull/push_pull.h"
#include "ps/server_connection.h"

namespace muster {
namespace {

constexpr uint64_t kLife = 1, kLayout = 1;
constexpr int kWarm = 3, kRounds = 20;

double Now() { return Seconds(Clock::now().time_since_epoch()); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Two ends of one TCP connection on loopback; the second one for a child.
std::pair<int, int> Connect() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    std::abort();
  const int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(near, reinterpret_cast<sockaddr*>(&address), length) != 0) std::abort();
  const int far = accept(listener, nullptr, nullptr);
  const int on = 1;
  for (const int fd : {near, far}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(listener);
  return {near, far};
}

// Runs `serve` on the far end in a process of its own and `round` on the near one; the median.
double Measure(const std::function<void(int)>& serve, const std::function<void()>& round,
               const std::pair<int, int>& ends) {
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends.first);
    serve(ends.second);
    _exit(0);
  }
  close(ends.second);
  std::vector<double> seconds;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    const double start = Now();
    round();
    if (i >= kWarm) seconds.push_back(Now() - start);
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return Median(seconds);
}

void SendAll(int fd, const void* data, size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) std::abort();
    at += n;
    bytes -= n;
  }
}
bool ReceiveAll(int fd, void* data, size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= n;
  }
  return true;
}

double PlainSeconds(size_t elements) {
  std::vector<float> gradient(elements, 1), pulled(elements);
  const auto ends = Connect();
  return Measure(
      [elements](int fd) {
        std::vector<float> parameters(elements), block(65536);
        while (true) {
          for (size_t at = 0; at < elements; at += block.size()) {
            const size_t count = std::min(block.size(), elements - at);
            if (!ReceiveAll(fd, block.data(), count * sizeof(float))) return;
            for (size_t i = 0; i < count; ++i) parameters[at + i] -= 0.01f * block[i];
          }
          SendAll(fd, parameters.data(), elements * sizeof(float));
        }
      },
      [&] {
        SendAll(ends.first, gradient.data(), elements * sizeof(float));
        ReceiveAll(ends.first, pulled.data(), elements * sizeof(float));
      },
      ends);
}

double MusterSeconds(size_t elements, int64_t chunk_bytes, bool checksum) {
  const Layout layout = MakeLayout({{"parameter", {static_cast<int64_t>(elements)}}},
                                   {.servers = 1, .chunk_bytes = chunk_bytes});
  std::vector<float> gradient(elements, 1), pulled(elements);
  const transport::AbortSignal abort;
  const auto ends = Connect();
  transport::DataConnection worker(transport::MakeTcpStream(dup(ends.first)), {});
  std::vector<ps::ChunkTransfer> transfers;
  for (size_t c = 0; c < layout.chunks[0].size(); ++c) {
    const Chunk& chunk = layout.chunks[0][c];
    const auto part = [&](std::vector<float>& all) {
      return std::span(all).subspan(chunk.begin, chunk.elements());
    };
    transfers.push_back({static_cast<int>(c), part(gradient), part(pulled)});
  }
  uint64_t sequence = 0;
  return Measure(
      [&](int fd) {
        auto store = DenseStore::Make({layout.chunks[0], {SgdSpec{}}});
        for (size_t c = 0; c < layout.chunks[0].size(); ++c)
          (void)store->Fill(static_cast<int>(c),
                            std::vector<float>(layout.chunks[0][c].elements()));
        store->Admit(0, kLife);
        transport::DataConnection connection(transport::MakeTcpStream(fd), {});
        (void)ps::Serve(connection, *store, {.layout = kLayout, .chunks = layout.chunks[0]}, abort);
      },
      [&] {
        const MonotonicTime deadline = Clock::now() + std::chrono::seconds(30);
        if (sequence == 0 && !ps::OpenConnection(worker, 0, kLife, kLayout, deadline, abort).ok())
          std::abort();
        for (ps::ChunkTransfer& t : transfers) t.done = false;
        if (!ps::PushPull(worker, {++sequence, 0.01, checksum}, transfers, deadline, abort).ok())
          std::abort();
      },
      ends);
}

void Embedding() {
  constexpr int64_t kWidth = 16, kKeys = 1'000'000, kBatch = 8192;
  std::printf("\nembedding table, %lld rows of %lld, batches of %lld random keys, one thread\n",
              static_cast<long long>(kKeys), static_cast<long long>(kWidth),
              static_cast<long long>(kBatch));
  std::mt19937_64 random(1);
  std::vector<uint64_t> keys(kBatch);
  std::vector<float> rows(kBatch * kWidth), all(kKeys * kWidth, 1);
  const auto rate = [&](const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int i = 0; i < 50; ++i) {
      for (uint64_t& key : keys) key = random() % kKeys;
      const double start = Now();
      work();
      seconds.push_back(Now() - start);
    }
    return kBatch / Median(seconds) / 1e6;
  };
  const double copy = rate([&] {
    for (int64_t i = 0; i < kBatch; ++i)
      std::copy_n(all.data() + static_cast<int64_t>(keys[i]) * kWidth, kWidth,
                  rows.data() + i * kWidth);
  });
  std::printf("%-10s %8.1f M keys/s\n", "copy", copy);
  for (const char* name : {"sgd", "adagrad", "adam"}) {
    const auto table =
        EmbeddingTable::Make({.width = kWidth, .rule = ParseOptimizer(Json(name))->rule});
    std::vector<uint64_t> fill(kKeys);
    std::iota(fill.begin(), fill.end(), uint64_t{0});
    (void)table->Pull(fill, all);
    const double pulled = rate([&] { (void)table->Pull(keys, rows); });
    const double pushed = rate([&] { (void)table->Push(keys, rows, 1e-9); });
    std::printf("%-10s %8.1f M keys/s pulled (%.2f of copy), %.1f pushed (%.2f)\n", name, pulled,
                pulled / copy, pushed, pushed / copy);
  }
}

int Main(int argc, char** argv) {
  const double mb = argc > 1 ? std::atof(argv[1]) : 22;
  const auto elements = static_cast<size_t>(mb * 250'000);
  std::printf("push and pull of %g MB, one worker, one server, TCP on loopback\n", mb);
  const double plain = PlainSeconds(elements);
  std::printf("%-26s %7.2f ms\n", "plain loop", plain * 1e3);
  for (const int64_t kib : {64, 256, 1024}) {
    for (const bool checksum : {false, true}) {
      const double seconds = MusterSeconds(elements, kib << 10, checksum);
      std::printf("%-26s %7.2f ms, %.2f of the plain loop\n",
                  fmt::format("chunks of {} KiB{}", kib, checksum ? ", checksums" : "").c_str(),
                  seconds * 1e3, seconds / plain);
    }
  }
  Embedding();
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
