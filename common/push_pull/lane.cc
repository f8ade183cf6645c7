#include "common/push_pull/lane.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace muster::ps {
namespace {

// A shard that says nothing for so long may have another primary by now.
constexpr Duration kStall = std::chrono::seconds(1);
constexpr Duration kDialLimit = std::chrono::seconds(10),
                   kDialSlice = std::chrono::milliseconds(20);
constexpr Duration kFirstBackoff = std::chrono::milliseconds(10);
constexpr Duration kLastBackoff = std::chrono::milliseconds(500);

// The memory of [begin, end) of what `all` covers.
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

// What another connection, or another view, cannot mend.
bool IsForGood(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status);
}

}  // namespace

Lane::Lane(Options options)
    : options_(std::move(options)),
      chunks_(options_.client->layout.chunks[options_.shard]),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      updates_(chunks_.size()),
      pushed_(chunks_.size()),
      told_(options_.connection != 0),  // the first one speaks for all
      channel_(static_cast<uint32_t>(options_.client->incarnation) +
               static_cast<uint32_t>(options_.connection)) {
  for (const Chunk& chunk : chunks_)
    pieces_.push_back(Cut(options_.client->parameters[options_.shard], chunk.begin, chunk.end));
  thread_ = std::thread([this] { Run(); });
}

Lane::~Lane() {
  Stop();
  thread_.join();
}

void Lane::Begin(const Errand& errand) {
  absl::MutexLock lock(&mutex_);
  errand_ = errand;
}

void Lane::Launch(int chunk, PushPullClient::What what) {
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = launched_.empty();
    launched_.emplace_back(chunk, what);
  }
  if (first) Wake();
}

void Lane::Launch(std::span<const ChunkRequest> requests) {
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = rows_.empty();
    rows_.insert(rows_.end(), requests.begin(), requests.end());
  }
  if (first) Wake();
}

void Lane::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void Lane::Stop() {
  stopping_ = true;
  Wake();
}

int Lane::id() const {
  return options_.shard * static_cast<int>(options_.client->options.connections) +
         options_.connection;
}

std::string Lane::Server() const {
  const int task = view_ == nullptr ? -1 : view_->shards[options_.shard].task;
  return fmt::format("ps {} (shard {})", task, options_.shard);
}

ChunkRequest Lane::RequestFor(int chunk, PushPullClient::What what, const Errand& errand) const {
  const Chunk& place = chunks_[chunk];
  ChunkRequest request;
  request.chunk = chunk;
  request.offset = place.begin;
  request.elements = place.elements();
  request.parameters = pieces_[chunk];
  if (!errand.push) return request;
  if (what == PushPullClient::What::kNothing) {
    request.if_newer = true;
    request.pulled = updates_[chunk];
    return request;
  }
  request.floor = what == PushPullClient::What::kDifference;
  request.gradient = options_.gradients.subspan(place.begin, place.elements());
  FillIn(errand, &request);
  return request;
}

void Lane::FillIn(const Errand& errand, ChunkRequest* request) const {
  request->sequence = errand.which.sequence;
  request->lease = errand.which.lease;
  request->learning_rate = errand.which.learning_rates[chunks_[request->chunk].optimizer];
  // Own pushes are no staleness: those that came after the pull have been answered since.
  request->pulled =
      request->rows ? request->pulled + pushed_[request->chunk] : updates_[request->chunk];
}

bool Lane::TakeLaunched() {
  std::vector<std::pair<int, PushPullClient::What>> launched;
  std::vector<ChunkRequest> requests;
  Errand errand;
  {
    absl::MutexLock lock(&mutex_);
    launched.swap(launched_);
    requests.swap(rows_);
    if (!launched.empty() || !requests.empty()) errand = errand_;
  }
  if (errand.number > doing_) {
    doing_ = errand.number;
    keeps_ = errand.push;
    had_.clear();
  }
  for (ChunkRequest& request : requests)
    if (request.push()) FillIn(errand, &request);
  for (const auto& [chunk, what] : launched) requests.push_back(RequestFor(chunk, what, errand));
  for (const ChunkRequest& request : requests) {
    if (link_ != nullptr && todo_.empty()) {
      link_->Ask(request);
    } else {
      todo_.push_back(request);
    }
  }
  return !todo_.empty() || (link_ != nullptr && !link_->idle());
}

// What the shard had of the push under way, and lost when it was set back. True: there is some.
bool Lane::SendAgain(const ClientView& view) {
  if (std::exchange(looked_at_, view.number) == view.number || had_.empty()) return false;
  const uint64_t restored = view.shards[options_.shard].restored;
  const auto lost = std::stable_partition(had_.begin(), had_.end(),
                                          [&](const auto& had) { return had.first > restored; });
  if (lost == had_.end()) return false;
  const bool open = options_.reopen(doing_, restored);
  // Before pulls of rows, which may have been launched behind these.
  for (auto had = had_.end(); open && had != lost;) todo_.push_front((--had)->second);
  had_.erase(lost, had_.end());
  return open;
}

// Until something can be read or written, Wake, or the limit; false after that one.
bool Lane::Sleep(std::optional<Duration> limit) {
  pollfd polled[] = {{wake_.get(), POLLIN, 0}, {-1, 0, 0}};
  if (link_ != nullptr) polled[1] = {link_->fd(), link_->PollEvents(), 0};
  const int ms =
      limit ? static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*limit).count()) : -1;
  const int ready = poll(polled, 2, ms);
  uint64_t count = 0;
  if (polled[0].revents != 0) {
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
  }
  return ready != 0;
}

absl::StatusOr<std::unique_ptr<transport::DataConnection>> Lane::Dial(const ClientView& view) {
  const ClientView::Primary& primary = view.shards[options_.shard];
  if (primary.task < 0) return PeerLost("nobody serves it");
  const MonotonicTime start = Clock::now();
  channel_ += static_cast<uint32_t>(options_.client->options.connections);
  const auto dialing = options_.client->listener->Dial(
      {primary.address,
       {view.number, options_.client->worker, options_.shard, channel_, view.ticket},
       start + kDialLimit});
  for (uint64_t seen = 0;; options_.client->listener->WaitForChange(&seen, kDialSlice)) {
    if (auto result = dialing->TakeResult()) return *std::move(result);
    if (stopping_ || options_.views->current()->number != view.number)
      return Superseded("given up");
    if (Clock::now() - start > kStall)
      options_.views->Trouble(id(), view.number,
                              PeerLost(fmt::format("{} does not accept a connection", Server())));
  }
}

void Lane::Open(std::unique_ptr<transport::DataConnection> connection, const ClientView& view) {
  const ClientOptions& client = *options_.client;
  ShardConnection::Options options;
  options.open = {client.incarnation, LayoutNumber(client.digest), view.number,
                  static_cast<uint32_t>(client.worker), static_cast<uint32_t>(options_.shard)};
  options.checksum = client.options.checksum;
  options.compression = client.options.compression;
  if (options_.shared_gradients != nullptr &&
      view.shards[options_.shard].host_id == client.host_id) {
    // Of this connection alone: whoever holds an older one writes where nobody reads.
    auto memory = transport::SharedMemory::Create(options_.gradients.size_bytes());
    if (memory.ok()) {
      options.gradients = options_.shared_gradients;
      options.parameters = *std::move(memory);
    } else if (!std::exchange(told_, true)) {
      LogInfo("{} is on this host, but is reached over TCP: {}", Server(),
              Message(memory.status()));
    }
  }
  link_ = std::make_unique<ShardConnection>(std::move(connection), std::move(options));
  for (const ChunkRequest& request : todo_) link_->Ask(request);
  todo_.clear();
}

absl::Status Lane::Connect(const std::shared_ptr<const ClientView>& view) {
  view_ = view;
  auto connection = Dial(*view);
  MUSTER_RETURN_IF_ERROR(connection.status());
  Open(*std::move(connection), *view);
  return absl::OkStatus();
}

void Lane::Drop(const absl::Status& why) {
  std::vector<ChunkRequest> rest = link_->Unanswered();
  // Whether a push is in the chunk already is not known, so that a pull of rows that came before it
  // could not tell whether it found it there: now it comes after.
  std::stable_partition(rest.begin(), rest.end(),
                        [](const ChunkRequest& request) { return request.pull == nullptr; });
  if (!rest.empty() && !IsForGood(why)) {
    if (!std::exchange(warned_, true))
      LogWarning("The connection to {} ended, chunks to be sent again: {}. {}", Server(),
                 rest.size(), Message(why));
    options_.resumed();
  }
  todo_.insert(todo_.begin(), rest.begin(), rest.end());
  link_.reset();
}

void Lane::Took(ChunkAnswer answer) {
  const ChunkRequest& request = answer.request;
  if (request.pull != nullptr) {
    answer.others = answer.pushed.updates - pushed_[request.chunk];
  } else if (request.rows) {
    pushed_[request.chunk] += answer.pushed.refused ? 0 : 1;
  } else if (!request.parameters.empty()) {
    updates_[request.chunk] = answer.pushed.updates;
  }
  backoff_ = {};
  warned_ = false;
  options_.views->Calm(id());
  if (keeps_ && request.push()) had_.emplace_back(number(), request);
  options_.answered(answer, number());
}

absl::Status Lane::Pump() {
  const bool opening = !link_->welcomed();
  absl::StatusOr<bool> moved = true;
  while (moved.ok() && *moved && !stopping_) {
    moved = link_->Pump(&answers_);
    for (const ChunkAnswer& answer : std::exchange(answers_, {})) Took(answer);
    TakeLaunched();
  }
  if (opening && link_->welcomed() && !std::exchange(told_, true)) {
    if (link_->shares_memory()) {
      LogInfo("{} is on this host: shared memory.", Server());
    } else if (!link_->declined().empty()) {
      LogInfo("{} is on this host, but is reached over TCP: {}", Server(), link_->declined());
    }
  }
  return moved.status();
}

void Lane::Failed(const absl::Status& why) {
  if (stopping_) return;
  if (IsForGood(why)) return options_.failed(Annotate(why, Server() + ": "));
  options_.views->Trouble(id(), number(), Annotate(why, Server() + ": "));
  backoff_ = backoff_ == Duration::zero() ? kFirstBackoff : std::min(2 * backoff_, kLastBackoff);
  Sleep(backoff_);
}

void Lane::Round() {
  bool work = TakeLaunched();
  const auto view = options_.views->current();
  if (link_ != nullptr && view->number != view_->number) Drop(Superseded("there is a new view"));
  if (view != nullptr && SendAgain(*view)) work = true;
  if (!work) {
    Sleep(std::nullopt);
    if (link_ == nullptr) return;
    // A connection that ends while nothing is under way is opened again when it is needed.
    if (const absl::Status status = Pump(); !status.ok()) Drop(status);
    return;
  }
  if (view == nullptr) {
    options_.views->Trouble(id(), 0, PeerLost("it has not begun"));
    Sleep(std::nullopt);
    return;
  }
  if (link_ == nullptr) {
    if (const absl::Status status = Connect(view); !status.ok()) return Failed(status);
  }
  if (const absl::Status status = Pump(); !status.ok()) {
    Drop(status);
    return Failed(status);
  }
  if (link_->idle()) return;
  if (!Sleep(kStall))
    options_.views->Trouble(id(), number(),
                            DeadlinePassed(fmt::format("{} does not answer", Server())));
}

void Lane::Run() {
  while (!stopping_) Round();
  link_.reset();
  options_.ended();
}

}  // namespace muster::ps
