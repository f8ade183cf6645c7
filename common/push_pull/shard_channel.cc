#include "common/push_pull/shard_channel.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "common/base/logging.h"

namespace muster::push_pull {
namespace {

// After this silence of a server, the channel asks for a newer view.
constexpr Duration kStall = std::chrono::seconds(1);
constexpr Duration kDialLimit = std::chrono::seconds(10),
                   kDialSlice = std::chrono::milliseconds(20);
constexpr rpc::RetryPolicy kRetries = {.initial = std::chrono::milliseconds(10),
                                       .max = std::chrono::milliseconds(500),
                                       .multiplier = 2,
                                       .jitter = 0};

// Returns the memory of [begin, end) within the range that `all` covers.
std::vector<std::span<float>> Cut(const std::vector<std::span<float>>& all, int64_t begin,
                                  int64_t end) {
  std::vector<std::span<float>> pieces;
  int64_t at = 0;
  for (const std::span<float> span : all) {
    const int64_t from = std::max(begin, at);
    const int64_t to = std::min(end, at + static_cast<int64_t>(span.size()));
    if (from < to) pieces.push_back(span.subspan(from - at, to - from));
    at += static_cast<int64_t>(span.size());
  }
  return pieces;
}

// True for errors that another connection or view cannot fix.
bool IsPermanent(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status);
}

}  // namespace

ShardChannel::ShardChannel(Options options)
    : options_(std::move(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      logged_(options_.connection != 0),  // Only the first connection logs.
      connection_number_(static_cast<uint32_t>(options_.client->incarnation) +
                         static_cast<uint32_t>(options_.connection)),
      backoff_(kRetries) {
  for (const Chunk& chunk : options_.client->layout.chunks[options_.shard])
    pieces_.push_back(Cut(options_.client->parameters[options_.shard], chunk.begin, chunk.end));
  thread_ = std::thread([this] { Run(); });
}

ShardChannel::~ShardChannel() {
  Stop();
  thread_.join();
}

// The positions of this channel's chunks in the shard's memory. Empty if the channel has all of it.
std::vector<transport::SharedMemory::ByteRange> ShardChannel::MemoryRanges() const {
  std::vector<transport::SharedMemory::ByteRange> ranges;
  const auto connections = static_cast<size_t>(options_.client->options.connections);
  if (connections == 1) return ranges;
  const std::vector<Chunk>& chunks = options_.client->layout.chunks[options_.shard];
  for (size_t c = static_cast<size_t>(options_.connection); c < chunks.size(); c += connections)
    if (!chunks[c].rows())
      ranges.push_back(
          {chunks[c].begin * sizeof(float), static_cast<uint64_t>(chunks[c].end) * sizeof(float)});
  if (ranges.empty()) ranges.emplace_back();
  return ranges;
}

void ShardChannel::Launch(std::span<const Transfer> transfers) {
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = launched_.empty();
    launched_.insert(launched_.end(), transfers.begin(), transfers.end());
  }
  if (first) Wake();
}

void ShardChannel::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void ShardChannel::Stop() {
  stopping_ = true;
  Wake();
}

std::string ShardChannel::Server() const {
  const int task = view_ == nullptr ? -1 : view_->shards[options_.shard].task;
  return fmt::format("ps {} (shard {})", task, options_.shard);
}

bool ShardChannel::TakeLaunched() {
  std::vector<Transfer> launched;
  {
    absl::MutexLock lock(&mutex_);
    launched.swap(launched_);
  }
  for (const Transfer& transfer : launched) {
    if (link_ != nullptr && todo_.empty()) {
      link_->Ask(transfer);
    } else {
      todo_.push_back(transfer);
    }
  }
  return !todo_.empty() || (link_ != nullptr && !link_->idle());
}

// Queues the chunks of the current push that the shard lost when it was restored. Returns whether
// there were any.
bool ShardChannel::SendAgain(const ClientView& view) {
  const uint64_t restored = view.shards[options_.shard].restored;
  if (restored == 0) return false;
  const std::vector<Transfer> lost = options_.reopen(restored);
  // They go before pulls of rows, which may have been launched after them.
  todo_.insert(todo_.begin(), lost.begin(), lost.end());
  return !lost.empty();
}

// Sleeps until the connection is readable or writable, Wake is called, or the limit passes. Returns
// false at the limit.
bool ShardChannel::Sleep(std::optional<Duration> limit) {
  pollfd polled[] = {{wake_.get(), POLLIN, 0}, {-1, 0, 0}};
  if (link_ != nullptr) {
    if (link_->Buffered()) return true;
    polled[1] = {link_->fd(), link_->PollEvents(), 0};
  }
  if (!wake_) return SleepUnwoken(polled, limit);
  const int ms =
      limit ? static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*limit).count()) : -1;
  const int ready = poll(polled, 2, ms);
  uint64_t count = 0;
  if (polled[0].revents != 0) {
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
  }
  return ready != 0;
}

// Does the same as Sleep if no descriptor was available for the eventfd wake_.
bool ShardChannel::SleepUnwoken(std::span<pollfd> polled, std::optional<Duration> limit) {
  constexpr int kLookMs = 20;
  const MonotonicTime begin = Clock::now();
  while (poll(polled.data(), polled.size(), kLookMs) == 0) {
    if (limit && Clock::now() - begin >= *limit) return false;
    absl::MutexLock lock(&mutex_);
    if (stopping_ || !launched_.empty()) return true;
    if (!limit) return true;  // The caller checks the other conditions that Wake signals.
  }
  return true;
}

absl::StatusOr<std::unique_ptr<transport::DataConnection>> ShardChannel::Dial(
    const ClientView& view) {
  const ClientView::Primary& primary = view.shards[options_.shard];
  if (primary.task < 0) return PeerLost("nobody serves it");
  const MonotonicTime start = Clock::now();
  connection_number_ += static_cast<uint32_t>(options_.client->options.connections);
  const auto dialing = options_.client->listener->Dial(
      {primary.address,
       {view.number, options_.client->worker, options_.shard, connection_number_, view.ticket},
       start + kDialLimit,
       fmt::format("ps:{}", primary.task)});
  for (uint64_t seen = 0;; options_.client->listener->WaitForChange(&seen, kDialSlice)) {
    if (auto result = dialing->TakeResult()) return *std::move(result);
    if (stopping_ || options_.views->current()->number != view.number)
      return Superseded("given up");
    if (Clock::now() - start > kStall)
      options_.views->ReportFailure(
          this, view.number, PeerLost(fmt::format("{} does not accept a connection", Server())));
  }
}

absl::Status ShardChannel::Connect(const std::shared_ptr<const ClientView>& next) {
  view_ = next;
  const ClientView& view = *next;
  MUSTER_ASSIGN_OR_RETURN(auto connection, Dial(view));
  const ClientOptions& client = *options_.client;
  ShardConnection::Options options;
  options.open = {.worker = static_cast<uint32_t>(client.worker),
                  .incarnation = client.incarnation,
                  .layout = LayoutNumber(client.digest),
                  .view = view.number,
                  .shard = static_cast<uint32_t>(options_.shard)};
  options.checksum = client.options.checksum;
  options.compression = client.options.compression;
  options.chunks = client.layout.chunks[options_.shard];
  options.parameters = pieces_;
  if (options_.gradients != nullptr && view.shards[options_.shard].host_id == client.host_id) {
    // Each connection has new memory. A server that still serves an older connection then writes to
    // memory that nobody reads.
    auto memory =
        transport::SharedMemory::Create(options_.gradients->place().bytes, MemoryRanges());
    if (memory.ok()) {
      options.gradients = options_.gradients;
      options.memory = *std::move(memory);
      options.traffic = client.shared_memory;
    } else if (!std::exchange(logged_, true)) {
      LogInfo("{} is on this host, but is reached over TCP: {}", Server(),
              Message(memory.status()));
    }
  }
  link_ = std::make_unique<ShardConnection>(std::move(connection), std::move(options));
  for (const Transfer& transfer : todo_) link_->Ask(transfer);
  todo_.clear();
  return absl::OkStatus();
}

void ShardChannel::Drop(const absl::Status& why) {
  std::vector<Transfer> rest = link_->Unanswered();
  // It is unknown whether an unanswered push is already in the chunk. An earlier row pull, repeated
  // before the push, could not tell whether its rows include the push. Pulls are therefore moved
  // after pushes.
  std::stable_partition(rest.begin(), rest.end(),
                        [](const Transfer& transfer) { return transfer.rows() == nullptr; });
  if (!rest.empty() && !IsPermanent(why)) {
    if (!std::exchange(warned_, true))
      LogWarning("the connection to {} ended with {} chunks to resend: {}", Server(), rest.size(),
                 Message(why));
    options_.resumed();
  }
  todo_.insert(todo_.begin(), rest.begin(), rest.end());
  link_.reset();
}

absl::Status ShardChannel::Pump() {
  const bool opening = !link_->welcomed();
  absl::StatusOr<bool> moved = true;
  while (moved.ok() && *moved && !stopping_) {
    moved = link_->Pump(&answers_);
    if (!answers_.empty()) {
      backoff_.Reset();
      warned_ = false;
      options_.views->ReportSuccess(this);
      options_.answered(answers_, view_number());
      answers_.clear();
    }
    TakeLaunched();
  }
  if (opening && link_->welcomed() && !std::exchange(logged_, true)) {
    if (link_->shares_memory()) {
      LogInfo("{} is on this host: the connection uses shared memory", Server());
    } else if (!link_->declined().empty()) {
      LogInfo("{} is on this host, but is reached over TCP: {}", Server(), link_->declined());
    }
  }
  return moved.status();
}

void ShardChannel::Fail(const absl::Status& why) {
  if (stopping_) return;
  if (IsPermanent(why)) return options_.failed(Annotate(why, Server() + ": "));
  options_.views->ReportFailure(this, view_number(), Annotate(why, Server() + ": "));
  Sleep(backoff_.Next());
}

void ShardChannel::Round() {
  bool work = TakeLaunched();
  const auto view = options_.views->current();
  if (link_ != nullptr && view->number != view_->number) Drop(Superseded("there is a new view"));
  if (view != nullptr && SendAgain(*view)) work = true;
  if (!work) {
    Sleep(std::nullopt);
    if (link_ == nullptr) return;
    // A connection that ends while idle is reopened when it is needed.
    if (const absl::Status status = Pump(); !status.ok()) Drop(status);
    return;
  }
  if (view == nullptr) {
    options_.views->ReportFailure(this, 0, PeerLost("it has not begun"));
    Sleep(std::nullopt);
    return;
  }
  if (link_ == nullptr) {
    if (const absl::Status status = Connect(view); !status.ok()) return Fail(status);
  }
  if (const absl::Status status = Pump(); !status.ok()) {
    Drop(status);
    return Fail(status);
  }
  if (link_->idle()) return;
  if (!Sleep(kStall))
    options_.views->ReportFailure(this, view_number(),
                                  DeadlinePassed(fmt::format("{} does not answer", Server())));
}

void ShardChannel::Run() {
  const SpanThread thread(spans_, fmt::format("push and pull, shard {}, connection {}",
                                              options_.shard, options_.connection));
  try {
    while (!stopping_) Round();
  } catch (const std::bad_alloc&) {
    options_.failed(absl::ResourceExhaustedError(Server() + ": no memory is left for its data"));
  }
  link_.reset();
  options_.ended();
}

}  // namespace muster::push_pull
