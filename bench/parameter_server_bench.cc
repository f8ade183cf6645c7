// Measures the data path of a parameter server, against bounds measured in the same run.
//
//   parameter_server_bench [MB]      default 22, 0: rows alone; MUSTER_BENCH_BEST=1: the best
//   rounds, not medians
//   parameter_server_bench readers | copies | tables | connections     one part alone
//
// Dense: one worker pushes and pulls MB of float32 to and from one server, a process of its own,
// with SGD on the server, over TCP on loopback and over shared memory. The bounds: the same bytes
// over a plain connection, with a loop that applies SGD as they arrive, without chunks, checks, or
// locks; and the same passes over memory by one thread, without any other process. ps-lite takes
// 34.8 ms where plain TCP moves 3 GB/s: its time is scaled by the rate measured here.
// Embedding: one table of this process, batches of random keys, dimension 16; the bound is a copy
// of as many rows in random order. Then the same table on a server, with all that a worker does to
// pull and push a batch; the bound is a plain loop over TCP that carries as many bytes. Then eight
// tables on four servers, all of a batch together, and table by table.
// Readers: threads of this process that pull from one store. Copies: the same as above with a
// backup of each shard in a process of its own. Connections: one server with many workers.
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
#include <filesystem>
#include <fstream>
#include <list>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "common/base/logging.h"
#include "common/optim/update_kernels.h"
#include "common/push_pull/client.h"
#include "common/push_pull/rows/embedding_table.h"
#include "common/push_pull/rows/key_index.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/push_pull/wire.h"
#include "ps/replication/replication.h"
#include "ps/server_connection.h"

namespace muster {
namespace {

using ps::ShardStore;
using push_pull::kRowChunks;
using push_pull::Layout;
using push_pull::MakeLayout;
using push_pull::PackChunk;
using push_pull::ParameterServerOptions;
using push_pull::RowSpread;
using push_pull::SpreadRows;
using push_pull::TableSpec;
using push_pull::VariableSpec;

constexpr uint64_t kLife = 1, kView = 1;
constexpr const char *kTicket = "ticket", *kDigest = "digest";
constexpr int kWarm = 3, kRounds = 40;
constexpr int64_t kTableRows = 1'000'000, kTableWidth = 16;

double Now() { return Seconds(Clock::now().time_since_epoch()); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
// With MUSTER_BENCH_BEST, where others use the machine too, the shortest.
double Typical(std::vector<double> values) {
  static const bool best = std::getenv("MUSTER_BENCH_BEST") != nullptr;
  return best ? *std::min_element(values.begin(), values.end()) : Median(std::move(values));
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
  return Typical(seconds);
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

// Bytes a second of one direction of a connection.
double PlainRate() {
  constexpr size_t kBytes = 64 << 20;
  std::vector<char> sent(kBytes, 1);
  char done = 0;
  const auto ends = Connect();
  const double seconds = Measure(
      [](int fd) {
        std::vector<char> received(1 << 20);
        while (true) {
          for (size_t at = 0; at < kBytes; at += received.size())
            if (!ReceiveAll(fd, received.data(), received.size())) return;
          SendAll(fd, received.data(), 1);
        }
      },
      [&] {
        SendAll(ends.first, sent.data(), kBytes);
        ReceiveAll(ends.first, &done, 1);
      },
      ends);
  return kBytes / seconds;
}

// Measures the work that remains with shared memory, in sequence: the update, the copy of the
// parameters into the shared memory, and the copy out of it.
double MemorySeconds(size_t elements) {
  std::vector<float> gradient(elements, 1), parameters(elements), shared(elements), out(elements);
  std::vector<double> seconds;
  constexpr size_t kBlock = 65536;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    const double start = Now();
    for (size_t at = 0; at < elements; at += kBlock) {
      const size_t count = std::min(kBlock, elements - at);
      ApplyUpdate(
          SgdSpec{}, 0.01, 1,
          {std::span(parameters).subspan(at, count), std::span(gradient).subspan(at, count)});
      std::copy_n(parameters.begin() + at, count, shared.begin() + at);
      std::copy_n(shared.begin() + at, count, out.begin() + at);
    }
    if (i >= kWarm) seconds.push_back(Now() - start);
  }
  return Typical(seconds);
}

ps::ReplicationOptions Replication(const Layout& layout, int shard,
                                   const ParameterServerOptions& job,
                                   const transport::AbortSignal* abort) {
  ps::ReplicationOptions options;
  options.shard = shard;
  options.layout = push_pull::LayoutNumber(kDigest);
  options.chunks = static_cast<int>(layout.chunks[shard].size());
  options.checksum = job.checksum;
  [&job](auto& any) {  // earlier versions have no such member
    if constexpr (requires { any.compression; }) any.compression = job.compression;
  }(options);
  options.abort = abort;
  options.backup = 1;
  options.view = kView;
  options.ticket = kTicket;
  return options;
}

void Report(int to, const std::string& address) {
  if (write(to, address.data(), address.size()) < 0) std::abort();
  close(to);
}

// The backup of one shard, in a process of its own.
[[noreturn]] void RunBackup(const Layout& layout, int shard, ShardStore::Options options,
                            const ParameterServerOptions& job, int report) {
  auto listener = *transport::DataListener::Create({.bind_address = "127.0.0.1"});
  options.chunks = layout.chunks[shard];
  const transport::AbortSignal abort;
  const auto backup = ps::BackupShard::Make(ShardStore::Make(std::move(options)),
                                            Replication(layout, shard, job, &abort));
  const auto admission = listener->Admit(kView, transport::kAnyone, kTicket);
  Report(report, listener->address());
  std::vector<std::jthread> threads;
  for (uint64_t seen = 0;; listener->WaitForChange(&seen, std::chrono::seconds(1)))
    while (auto connection = admission->TakeAny())
      threads.emplace_back([&backup, c = std::shared_ptr(std::move(connection))] {
        const absl::Status served = backup->Serve(*c);
        if (!served.ok()) LogWarning("{}", Message(served));
      });
}

// A server process of one shard, for some workers. `fill` fills the store; a backup is there if it
// has an address.
struct ServerOptions {
  ShardStore::Options store;
  std::function<void(ShardStore&, int)> fill;
  ParameterServerOptions job;
  int workers = 1;
  std::string backup = "";
};
[[noreturn]] void RunServer(const Layout& layout, int shard, ServerOptions with, int report) {
  auto& [options, fill, job, workers, backup] = with;
  auto listener = *transport::DataListener::Create({.bind_address = "127.0.0.1"});
  ps::ServeOptions serve{.layout = push_pull::LayoutNumber(kDigest),
                         .chunks = layout.chunks[shard]};
  for (const auto& [table, table_options] : options.tables)
    serve.widths[table] = table_options.width;
  options.chunks = layout.chunks[shard];
  std::shared_ptr<ShardStore> store = ShardStore::Make(std::move(options));
  fill(*store, shard);
  for (int worker = 0; worker < workers; ++worker) store->Admit(worker, kLife);
  const transport::AbortSignal abort;
  if (!backup.empty()) {
    ps::ReplicationOptions replication = Replication(layout, shard, job, &abort);
    replication.listener = listener.get();
    replication.address = backup;
    const auto replicated = ps::ReplicatedStore::Make(store, replication);
    while (!replicated->synced()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    store = replicated;
  }
  const auto admission = listener->Admit(kView, transport::kAnyone, kTicket);
  Report(report, listener->address());
  std::vector<std::jthread> threads;
  for (uint64_t seen = 0; static_cast<int64_t>(threads.size()) < workers * job.connections;) {
    if (auto connection = admission->TakeAny()) {
      threads.emplace_back([&, c = std::shared_ptr(std::move(connection))] {
        const absl::Status served = ps::Serve(*c, *store, serve, abort);
        if (!served.ok()) LogWarning("{}", Message(served));
      });
    } else {
      listener->WaitForChange(&seen, std::chrono::seconds(1));
    }
  }
  threads.clear();
  _exit(0);
}

// A server process for each shard, with its backup in another one, and the clients of workers.
class Cluster {
 public:
  Cluster(const Layout& layout, ShardStore::Options store,
          std::function<void(ShardStore&, int)> fill, const ParameterServerOptions& options,
          bool shared, int workers = 1) {
    push_pull::ClientView view{kView, kTicket, {}};
    for (int shard = 0; shard < static_cast<int>(layout.elements.size()); ++shard) {
      ServerOptions server{store, fill, options, workers};
      if (options.copies > 1)
        server.backup =
            Start([&](int report) { RunBackup(layout, shard, store, options, report); });
      view.shards.push_back(
          {shard, Start([&](int report) { RunServer(layout, shard, server, report); }), "here"});
    }
    listener_ = *transport::DataListener::Create({.bind_address = "127.0.0.1"});
    for (int worker = 0; worker < workers; ++worker) {
      push_pull::ClientOptions client_options;
      client_options.worker = worker;
      client_options.incarnation = kLife;
      client_options.layout = layout;
      client_options.digest = kDigest;
      client_options.options = options;
      client_options.listener = listener_.get();
      client_options.host_id = shared ? "here" : "";
      client_options.next_view =
          [view](uint64_t newer_than) -> absl::StatusOr<push_pull::ClientView> {
        if (newer_than < kView) return view;
        // A server says nothing for a while where others use the machine, too.
        std::this_thread::sleep_for(std::chrono::seconds(5));
        return DeadlinePassed("there is one view");
      };
      for (const int64_t elements : layout.elements)
        client_options.parameters.push_back({parameters_.emplace_back(elements)});
      clients_.push_back(*push_pull::PushPullClient::Make(std::move(client_options)));
    }
  }
  ~Cluster() {
    clients_.clear();
    for (const pid_t server : processes_) {
      kill(server, SIGKILL);
      waitpid(server, nullptr, 0);
    }
  }
  push_pull::PushPullClient& client(int worker = 0) { return *clients_[worker]; }
  pid_t last_server() const { return processes_.back(); }

 private:
  // Its address.
  std::string Start(const std::function<void(int report)>& run) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    processes_.push_back(fork());
    if (processes_.back() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(ends[1]);
    }
    close(ends[1]);
    char address[64] = {};
    if (read(ends[0], address, sizeof address - 1) <= 0) std::abort();
    close(ends[0]);
    return address;
  }

  std::list<std::vector<float>> parameters_;
  std::vector<pid_t> processes_;
  std::unique_ptr<transport::DataListener> listener_;
  std::vector<std::unique_ptr<push_pull::PushPullClient>> clients_;
};

double MusterSeconds(size_t elements, const ParameterServerOptions& options, bool shared) {
  const Layout layout = MakeLayout({{"parameter", {static_cast<int64_t>(elements)}}},
                                   {.servers = 1, .chunk_bytes = options.chunk_bytes});
  Cluster pair(
      layout, {{}, {SgdSpec{}}},
      [&](ShardStore& store, int) {
        for (size_t c = 0; c < layout.chunks[0].size(); ++c)
          (void)store.Fill(static_cast<int>(c), std::vector<float>(layout.chunks[0][c].elements()));
      },
      options, shared);
  push_pull::PushPullClient& client = pair.client();
  std::fill_n(client.gradients(0).data(), elements, 1.0f);
  std::vector<double> seconds;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    const double start = Now();
    client.Begin(static_cast<uint64_t>(i + 1), 0, {0.01});
    for (size_t c = 0; c < layout.chunks[0].size(); ++c) client.Launch(0, static_cast<int>(c));
    if (!client.Finish().ok()) std::abort();
    if (i >= kWarm) seconds.push_back(Now() - start);
  }
  return Typical(seconds);
}

void Dense(double mb) {
  const auto elements = static_cast<size_t>(mb * 250'000);
  std::printf("push and pull of %g MB with SGD on the server, one worker, one server\n", mb);
  const double rate = PlainRate(), plain = PlainSeconds(elements), memory = MemorySeconds(elements);
  const double ps_lite = 34.8e-3 * (mb / 22) * (3e9 / rate);
  std::printf("%-34s %7.2f GB/s\n", "plain TCP, one direction", rate / 1e9);
  std::printf("%-34s %7.2f ms\n", "plain loop over TCP", plain * 1e3);
  std::printf("%-34s %7.2f ms\n", "the same passes over memory", memory * 1e3);
  std::printf("%-34s %7.2f ms\n", "ps-lite, scaled to this rate", ps_lite * 1e3);
  const auto line = [&](const std::string& name, ParameterServerOptions options, bool shared) {
    const double seconds = MusterSeconds(elements, options, shared);
    std::printf("%-34s %7.2f ms, %.2f of the plain loop, %.2f of ps-lite\n", name.c_str(),
                seconds * 1e3, seconds / plain, seconds / ps_lite);
  };
  for (const int64_t kib : {64, 256, 1024})
    line(fmt::format("TCP, chunks of {} KiB", kib), {.chunk_bytes = kib << 10}, false);
  line("TCP, checksums", {.checksum = true}, false);
  for (const int64_t connections : {2, 4})
    line(fmt::format("TCP, {} connections", connections), {.connections = connections}, false);
  line("TCP, bfloat16", {.compression = push_pull::Compression::kBFloat16}, false);
  line("TCP, float16", {.compression = push_pull::Compression::kFloat16}, false);
  for (const int64_t kib : {64, 256, 1024})
    line(fmt::format("shared memory, chunks of {} KiB", kib), {.chunk_bytes = kib << 10}, true);
  line("shared memory, 2 connections", {.connections = 2}, true);
}

void Embedding() {
  constexpr int64_t kWidth = kTableWidth, kKeys = kTableRows, kBatch = 8192;
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
    const auto table = push_pull::EmbeddingTable::Make(
        {.width = kWidth, .rule = ParseOptimizer(Json(name))->rule});
    std::vector<uint64_t> fill(kKeys);
    std::iota(fill.begin(), fill.end(), uint64_t{0});
    (void)table->Push(fill, all, 1e-9);
    const double pulled = rate([&] { (void)table->Peek(keys, rows); });
    const double pushed = rate([&] { (void)table->Push(keys, rows, 1e-9); });
    std::printf("%-10s %8.1f M keys/s pulled (%.2f of copy), %.1f pushed (%.2f)\n", name, pulled,
                pulled / copy, pushed, pushed / copy);
  }
}

// Different keys below kTableRows.
std::vector<uint64_t> RandomKeys(size_t count, std::mt19937_64* random) {
  push_pull::KeyIndex keys;
  std::vector<uint32_t> number;
  while (keys.keys().size() < count) {
    const uint64_t key = (*random)() % kTableRows;
    keys.Add({&key, 1}, &number);
  }
  return keys.keys();
}

// A chunk of rows, with slots as the rule begins.
ps::ChunkState FreshState(const RuleSpec& rule, size_t rows, std::vector<float> packed) {
  ps::ChunkState state;
  state.parameters = std::move(packed);
  for (const std::string& slot : ShapedSlots(rule))
    state.slots.emplace_back(rows * kTableWidth, static_cast<float>(InitialSlotValue(rule, slot)));
  return state;
}

// Keys a second of a plain loop over TCP that carries the bytes of a batch each way.
double PlainKeys(size_t batch, size_t sent, size_t received) {
  std::vector<char> request(sent, 1), reply(received);
  const auto ends = Connect();
  const double seconds = Measure(
      [=](int fd) {
        std::vector<char> in(sent), out(received, 1);
        while (ReceiveAll(fd, in.data(), sent)) SendAll(fd, out.data(), received);
      },
      [&] {
        SendAll(ends.first, request.data(), sent);
        ReceiveAll(ends.first, reply.data(), received);
      },
      ends);
  return static_cast<double>(batch) / seconds;
}

// A server with a table of kTableRows rows, and a worker that pulls and pushes batches of keys.
void RowsOverTheWire(const char* rule, size_t batch) {
  const auto width = static_cast<size_t>(kTableWidth);
  VariableSpec spec{"table", {0, kTableWidth}, 0};
  spec.table = TableSpec{.width = kTableWidth};
  const Layout layout = MakeLayout({spec}, {.servers = 1});
  const RuleSpec parsed = ParseOptimizer(Json(rule))->rule;
  Cluster pair(
      layout, {{}, {parsed}, {{0, {.width = kTableWidth, .rule = parsed, .shards = 1}}}, 1},
      [&](ShardStore& store, int) {
        std::vector<uint64_t> all(kTableRows);
        std::iota(all.begin(), all.end(), uint64_t{0});
        RowSpread spread;
        SpreadRows(all, 1, &spread);
        const std::vector<float> zeros(all.size() * width);
        for (size_t c = 0; c < spread.chunks(); ++c) {
          std::vector<float> packed(spread.count(c) * (2 + width));
          PackChunk(spread, c, kTableWidth, zeros, packed.data());
          if (!store
                   .Restore(static_cast<int>(c),
                            FreshState(parsed, spread.count(c), std::move(packed)))
                   .ok())
            std::abort();
        }
      },
      {}, true);
  std::mt19937_64 random(1);
  std::vector<float> rows(batch * width), gradients(batch * width, 1e-3f), by_chunk(batch * width);
  std::vector<float> packed(batch * (2 + width));
  std::vector<double> pulling, pushing;
  RowSpread spread;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    const std::vector<uint64_t> keys = RandomKeys(batch, &random);
    const double start = Now();
    SpreadRows(keys, 1, &spread);
    const auto fetch = std::make_shared<push_pull::RowFetch>();
    std::vector<push_pull::RowPull>& pulls = fetch->pulls;
    for (size_t c = 0; c < spread.chunks(); ++c)
      pulls.push_back(
          {0, static_cast<int>(c), std::span(spread.keys).subspan(spread.begin[c], spread.count(c)),
           std::span(by_chunk).subspan(spread.begin[c] * width, spread.count(c) * width)});
    pair.client().FetchRows({fetch});
    if (!pair.client().Await(*fetch).ok()) std::abort();
    push_pull::UnspreadRows(spread, kTableWidth, by_chunk, rows);
    const double pulled = Now();
    SpreadRows(keys, 1, &spread);
    std::vector<push_pull::RowPush> pushes;
    float* at = packed.data();
    for (size_t c = 0; c < spread.chunks(); ++c) {
      float* const end = PackChunk(spread, c, kTableWidth, gradients, at);
      pushes.push_back({0, static_cast<int>(c), {at, end}, pulls[c].others});
      at = end;
    }
    pair.client().Begin(static_cast<uint64_t>(i + 1), 0, {0.01});
    pair.client().LaunchRows(pushes);
    if (!pair.client().Finish().ok()) std::abort();
    if (i < kWarm) continue;
    pulling.push_back(pulled - start);
    pushing.push_back(Now() - pulled);
  }
  const auto rate = [batch](const std::vector<double>& seconds) {
    return static_cast<double>(batch) / Typical(seconds);
  };
  const size_t key = sizeof(uint64_t), row = width * sizeof(float), frame = 64 + 16 * 24;
  const double plain_pull = PlainKeys(batch, batch * key + frame, batch * row + frame);
  const double plain_push = PlainKeys(batch, batch * (key + row) + frame, frame);
  std::printf(
      "%-8s batches of %6zu: %5.2f M keys/s pulled (%.2f of plain TCP), %5.2f pushed (%.2f)\n",
      rule, batch, rate(pulling) / 1e6, rate(pulling) / plain_pull, rate(pushing) / 1e6,
      rate(pushing) / plain_push);
}

// So many keys of each of eight tables, whose rows are made by the first pushes, on four servers.
void SeveralTables(size_t batch, bool together, const ParameterServerOptions& options = {}) {
  constexpr int kTables = 8, kServers = 4;
  const auto width = static_cast<size_t>(kTableWidth);
  const RuleSpec rule = ParseOptimizer(Json("adagrad"))->rule;
  std::vector<VariableSpec> specs;
  ShardStore::Options store{{}, {rule}, {}, kServers};
  for (int t = 0; t < kTables; ++t) {
    specs.push_back({fmt::format("table{}", t), {0, kTableWidth}, 0});
    specs.back().table = TableSpec{.width = kTableWidth};
    store.tables[t] = {.width = kTableWidth, .rule = rule, .shards = 1};
  }
  const Layout layout = MakeLayout(specs, {.servers = kServers});
  Cluster cluster(
      layout, store,
      [&](ShardStore& filled, int shard) {
        const std::vector<float> none;
        for (size_t c = 0; c < layout.chunks[shard].size(); ++c)
          if (!filled.Restore(static_cast<int>(c), FreshState(rule, 0, none)).ok()) std::abort();
      },
      options, true);
  std::mt19937_64 random(1);
  const std::vector<float> gradients(batch * width, 1e-3f);
  std::vector<float> packed(kTables * batch * (2 + width));
  std::vector<double> pulling, pushing;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    std::vector<std::vector<uint64_t>> keys;
    for (int t = 0; t < kTables; ++t) keys.push_back(RandomKeys(batch, &random));
    const double start = Now();
    std::vector<RowSpread> spreads(kTables);
    std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;
    std::vector<std::vector<float>> rows(kTables);
    const auto await = [&](int t) {
      if (!cluster.client().Await(*fetches[t]).ok()) std::abort();
      rows[t].resize(batch * width);
      push_pull::UnspreadRows(spreads[t], kTableWidth, fetches[t]->rows, rows[t]);
    };
    for (int t = 0; t < kTables; ++t) {
      RowSpread& spread = spreads[t];
      SpreadRows(keys[t], kServers, &spread);
      const auto fetch = fetches.emplace_back(std::make_shared<push_pull::RowFetch>());
      fetch->keys = spread.keys;
      fetch->rows.resize(batch * width);
      for (size_t c = 0; c < spread.chunks(); ++c)
        if (spread.count(c) > 0)
          fetch->pulls.push_back(
              {static_cast<int>(c / kRowChunks), t * kRowChunks + static_cast<int>(c % kRowChunks),
               std::span<const uint64_t>(fetch->keys).subspan(spread.begin[c], spread.count(c)),
               std::span(fetch->rows).subspan(spread.begin[c] * width, spread.count(c) * width)});
      if (together) continue;
      cluster.client().FetchRows({fetch});
      await(t);
    }
    if (together) cluster.client().FetchRows(fetches);
    for (int t = 0; together && t < kTables; ++t) await(t);
    const double pulled = Now();
    std::vector<push_pull::RowPush> pushes;
    float* at = packed.data();
    for (int t = 0; t < kTables; ++t)
      for (const push_pull::RowPull& pull : fetches[t]->pulls) {
        float* const end = PackChunk(
            spreads[t], static_cast<size_t>(pull.shard * kRowChunks + pull.chunk - t * kRowChunks),
            kTableWidth, gradients, at);
        pushes.push_back({pull.shard, pull.chunk, {at, end}, pull.others});
        at = end;
      }
    cluster.client().Begin(static_cast<uint64_t>(i + 1), 0, {0.01});
    cluster.client().LaunchRows(pushes);
    if (!cluster.client().Finish().ok()) std::abort();
    if (i < kWarm) continue;
    pulling.push_back(pulled - start);
    pushing.push_back(Now() - pulled);
  }
  const double all = static_cast<double>(batch) * kTables;
  std::printf(
      "%d tables, %d servers, %5zu keys of each, %-15s%s%s: %5.2f M rows/s pulled, %5.2f pushed\n",
      kTables, kServers, batch, together ? "all together" : "table by table",
      options.copies > 1 ? ", 2 copies" : "",
      options.compression == push_pull::Compression::kNone ? "" : ", 16 bits",
      all / Typical(pulling) / 1e6, all / Typical(pushing) / 1e6);
}

void EmbeddingOverTheWire() {
  std::printf(
      "\nembedding table on a server, %lld rows of %lld, one worker, different random keys; rows "
      "travel over TCP, within a host too\n",
      static_cast<long long>(kTableRows), static_cast<long long>(kTableWidth));
  for (const char* rule : {"sgd", "adagrad", "adam"})
    for (const size_t batch : {size_t{8192}, size_t{65536}}) RowsOverTheWire(rule, batch);
  std::printf("\n");
  for (const size_t batch : {size_t{128}, size_t{1024}, size_t{8192}})
    for (const bool together : {false, true}) SeveralTables(batch, together);
}

// With a backup of each shard.
void Copies(double mb) {
  const auto elements = static_cast<size_t>(mb * 250'000);
  std::printf("\nwith 2 copies: push and pull of %g MB with SGD, one worker, one server\n", mb);
  for (const int64_t copies : {1, 2})
    for (const push_pull::Compression compression :
         {push_pull::Compression::kNone, push_pull::Compression::kBFloat16})
      for (const bool shared : {false, true})
        std::printf(
            "%lld copies, %-13s %-8s %7.2f ms\n", static_cast<long long>(copies),
            shared ? "shared memory" : "TCP",
            compression == push_pull::Compression::kNone ? "" : "bfloat16",
            1e3 * MusterSeconds(elements, {.copies = copies, .compression = compression}, shared));
  for (const int64_t copies : {1, 2})
    for (const size_t batch : {size_t{1024}, size_t{8192}})
      SeveralTables(batch, true, {.copies = copies});
  SeveralTables(8192, true, {.copies = 2, .compression = push_pull::Compression::kBFloat16});
}

// Threads of this process that pull the same chunks.
void Readers() {
  std::printf("\npulls from one store by threads of one process\n");
  constexpr int64_t kElements = 65'536, kChunks = 16;
  ShardStore::Options options{{}, {SgdSpec{}}};
  for (int64_t c = 0; c < kChunks; ++c)
    options.chunks.push_back({0, c * kElements, (c + 1) * kElements});
  options.chunks.push_back({0, 0, 0, 0, 0});
  options.tables[0] = {.width = kTableWidth, .rule = SgdSpec{}, .shards = 1};
  const auto store = ShardStore::Make(options);
  for (int c = 0; c < kChunks; ++c) (void)store->Fill(c, std::vector<float>(kElements));
  std::vector<uint64_t> keys(100'000);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  (void)store->Fill(kChunks,
                    push_pull::PackRows(keys, std::vector<float>(keys.size() * kTableWidth)));
  const auto run = [&](int threads, const std::function<void(int)>& pull) {
    std::vector<std::jthread> running;
    std::atomic<int64_t> pulls = 0;
    std::atomic<bool> end = false;
    const double start = Now();
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        while (!end) pull(t), ++pulls;
      });
    std::this_thread::sleep_for(std::chrono::seconds(1));
    end = true;
    running.clear();
    return static_cast<double>(pulls) / (Now() - start);
  };
  for (const int threads : {1, 2, 4}) {
    std::vector<std::vector<float>> out(threads, std::vector<float>(kElements));
    const double dense = run(threads, [&](int t) { (void)store->Pull(0, out[t]); });
    const double rows = run(threads, [&](int t) {
      (void)store->PullRows(kChunks, std::span(keys).first(2048),
                            std::span(out[t]).first(2048 * kTableWidth));
    });
    std::printf("%d threads: %6.2f GB/s of one chunk, %6.2f M rows/s of one chunk\n", threads,
                dense * kElements * 4 / 1e9, rows * 2048 / 1e6);
  }
}

// A number of /proc/<pid>/status, or the sum over its threads.
int64_t StatusOf(pid_t pid, const std::string& name, bool of_threads = false) {
  int64_t sum = 0;
  std::vector<std::string> files = {fmt::format("/proc/{}/status", pid)};
  if (of_threads) {
    files.clear();
    for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid)))
      files.push_back(task.path() / "status");
  }
  for (const std::string& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(name + ":")) sum += std::atoll(line.c_str() + name.size() + 1);
  }
  return sum;
}

// Many workers of one server, a thread of it for each.
void Connections() {
  std::printf(
      "\nworkers of one server, a thread of it for each: 4 MB of parameters, and 1024 rows of a "
      "table\n");
  VariableSpec spec{"table", {0, kTableWidth}, 0};
  spec.table = TableSpec{.width = kTableWidth};
  const Layout layout = MakeLayout({{"parameter", {1'000'000}}, spec}, {.servers = 1});
  const int dense = static_cast<int>(layout.chunks[0].size()) - kRowChunks;
  for (const int workers : {1, 2, 16, 64}) {
    Cluster cluster(
        layout, {{}, {SgdSpec{}}, {{1, {.width = kTableWidth, .rule = SgdSpec{}, .shards = 1}}}, 1},
        [&](ShardStore& store, int) {
          for (int c = 0; c < dense + kRowChunks; ++c)
            (void)store.Fill(c, std::vector<float>(layout.chunks[0][c].elements()));
        },
        {}, false, workers);
    const pid_t server = cluster.last_server();
    std::mt19937_64 random(1);
    const std::vector<uint64_t> keys = RandomKeys(1024, &random);
    RowSpread spread;
    SpreadRows(keys, 1, &spread);
    const std::vector<float> gradients(keys.size() * kTableWidth, 1e-3f);
    std::vector<float> packed(keys.size() * (2 + kTableWidth));
    std::vector<push_pull::RowPush> pushes;
    float* at = packed.data();
    for (size_t c = 0; c < spread.chunks(); ++c) {
      float* const end = PackChunk(spread, c, kTableWidth, gradients, at);
      pushes.push_back({0, dense + static_cast<int>(c), {at, end}});
      at = end;
    }
    // Makes one step of all workers at once.
    const auto step = [&](uint64_t n) {
      for (int w = 0; w < workers; ++w) {
        push_pull::PushPullClient& client = cluster.client(w);
        client.Begin(n, 0, {0.01});
        for (int c = 0; c < dense; ++c) client.Launch(0, c);
        client.LaunchRows(pushes);
      }
      for (int w = 0; w < workers; ++w)
        if (!cluster.client(w).Finish().ok()) std::abort();
    };
    const auto switches = [&] { return StatusOf(server, "voluntary_ctxt_switches", true); };
    const int64_t base = StatusOf(server, "VmRSS");  // without connections
    uint64_t n = 0;
    for (int i = 0; i < 3; ++i) step(++n);
    int64_t before = switches();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const int64_t idle = switches() - before;
    before = switches();
    const double start = Now();
    int64_t steps = 0;
    for (; Now() - start < 2; steps += workers) step(++n);
    const double seconds = Now() - start;
    std::printf(
        "%3d workers: %3lld threads, %5.2f MB each; idle: %lld switches/s; at work: %6.1f steps/s, "
        "%.1f switches a step\n",
        workers, static_cast<long long>(StatusOf(server, "Threads")),
        static_cast<double>(StatusOf(server, "VmRSS") - base) / 1e3 / workers,
        static_cast<long long>(idle), static_cast<double>(steps) / seconds,
        static_cast<double>(switches() - before) / static_cast<double>(steps));
  }
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  const std::string part = argc > 1 ? argv[1] : "22";
  if (part == "readers") return Readers(), 0;
  if (part == "copies") return Copies(22), 0;
  if (part == "connections") return Connections(), 0;
  if (part == "tables") {
    for (int i = 0; i < 3; ++i) SeveralTables(8192, true);
    return 0;
  }
  const double mb = std::atof(part.c_str());
  if (mb > 0) Dense(mb);
  Embedding();
  EmbeddingOverTheWire();
  Readers();
  Copies(mb > 0 ? mb : 22);
  Connections();
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
