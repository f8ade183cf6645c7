#include "common/push_pull/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/push_pull/shard_channel.h"
#include "common/push_pull/view_cache.h"

namespace muster::push_pull {
namespace {

// The gradients of one shard, in memory that can be shared with a server on this host.
struct GradientMemory {
  std::unique_ptr<transport::SharedMemory> shared;
  std::vector<float> own;  // Used if there is no shared memory.
  std::span<float> floats() { return shared ? shared->floats() : std::span<float>(own); }
};

class ClientImpl final : public PushPullClient {
 public:
  explicit ClientImpl(ClientOptions options) : options_(std::move(options)) {}
  ~ClientImpl() override {
    Abort(Superseded("the client is closing"));
    views_->Stop();  // It calls into this object.
    channels_.clear();
    if (options_.in_flight != nullptr) options_.in_flight->store(0, std::memory_order_relaxed);
  }

  void Start();
  std::span<float> gradients(int shard) override { return gradients_[shard].floats(); }
  void Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) override;
  using PushPullClient::Launch;
  void Launch(int shard, int chunk, What what) override;
  absl::StatusOr<Outcome> Finish() override;
  absl::Status Pull() override;
  void LaunchRows(std::span<const RowPush> pushes) override;
  void FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) override;
  absl::Status Await(const RowFetch& fetch) override;
  void Abort(absl::Status why) override;

 private:
  // The known state of a chunk.
  struct Known {
    int64_t updates = 0;  // For dense chunks: the chunk's number of updates at the last pull.
    int64_t own = 0;      // For tables: the number of this client's answered pushes.
  };
  // An acknowledged push to a chunk.
  struct Acknowledged {
    uint64_t view = 0;
    Transfer transfer;
    Pushed pushed;
  };
  using ByChannel = std::vector<std::vector<Transfer>>;

  absl::StatusOr<ClientView> NextView(uint64_t newer_than);
  ChunkPush PushLocked(int shard, int chunk, std::span<const float> gradient, int64_t pulled) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LaunchAll(const ByChannel& transfers);
  void Answered(int channel, std::span<const ChunkAnswer> answers, uint64_t view);
  void PulledLocked(int64_t others, RowPull* pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Transfer> Reopen(int channel, uint64_t view);
  int each() const { return static_cast<int>(options_.options.connections); }
  int ChannelOf(int shard, int chunk) const { return shard * each() + chunk % each(); }
  // Counts launched transfers, or answered ones if negative.
  void OpenLocked(int64_t transfers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    open_ += transfers;
    if (options_.in_flight != nullptr)
      options_.in_flight->store(static_cast<int64_t>(open_), std::memory_order_relaxed);
  }
  // Returns whether no channel accesses the caller's memory any more. `open` is the number of
  // missing answers.
  bool Settled(size_t open) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return status_.ok() ? open == 0 : running_ == 0;
  }

  const ClientOptions options_;
  std::vector<GradientMemory> gradients_;
  std::unique_ptr<ViewCache> views_;
  std::vector<std::unique_ptr<ShardChannel>> channels_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;                           // Channels.
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;                              // Launched transfers.
  std::set<std::shared_ptr<RowFetch>> fetches_ ABSL_GUARDED_BY(mutex_);  // In progress.
  std::vector<std::vector<Known>> known_ ABSL_GUARDED_BY(mutex_);        // By shard and chunk.
  // State of the current push.
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t lease_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> learning_rates_ ABSL_GUARDED_BY(mutex_);
  // Indexed by channel.
  std::vector<std::vector<Acknowledged>> acknowledged_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int resumed_ ABSL_GUARDED_BY(mutex_) = 0;
};

void ClientImpl::Start() {
  for (const int64_t elements : options_.layout.elements) {
    GradientMemory& memory = gradients_.emplace_back();
    if (!options_.host_id.empty() && elements > 0) {
      auto shared = transport::SharedMemory::Create(elements * sizeof(float));
      if (shared.ok()) {
        memory.shared = *std::move(shared);
      } else if (gradients_.size() == 1) {
        LogInfo("parameter servers of this host are reached over TCP: {}",
                Message(shared.status()));
      }
    }
    if (!memory.shared) memory.own.resize(elements);
  }
  views_ = std::make_unique<ViewCache>(
      ViewCache::Options{[this](uint64_t newer_than) { return NextView(newer_than); },
                         [this] {
                           for (const auto& channel : channels_) channel->Wake();
                         },
                         [this](const absl::Status& why) { Abort(why); }});
  {
    absl::MutexLock lock(&mutex_);
    running_ = gradients_.size() * static_cast<size_t>(each());
    acknowledged_.resize(running_);
    for (const std::vector<Chunk>& chunks : options_.layout.chunks)
      known_.emplace_back(chunks.size());
  }
  for (int i = 0; i < static_cast<int>(gradients_.size()) * each(); ++i) {
    ShardChannel::Options channel;
    channel.client = &options_;
    channel.shard = i / each();
    channel.connection = i % each();
    channel.gradients = gradients_[channel.shard].shared.get();
    channel.views = views_.get();
    channel.answered = [this, i](std::span<const ChunkAnswer> answers, uint64_t view) {
      Answered(i, answers, view);
    };
    channel.reopen = [this, i](uint64_t view) { return Reopen(i, view); };
    channel.resumed = [this] {
      absl::MutexLock lock(&mutex_);
      ++resumed_;
    };
    channel.failed = [this](const absl::Status& why) { Abort(why); };
    channel.ended = [this] {
      absl::MutexLock lock(&mutex_);
      if (--running_ == 0) changed_.SignalAll();
    };
    channels_.push_back(std::make_unique<ShardChannel>(std::move(channel)));
  }
}

absl::StatusOr<ClientView> ClientImpl::NextView(uint64_t newer_than) {
  absl::StatusOr<ClientView> view = options_.next_view(newer_than);
  if (view.ok() && view->number <= newer_than)
    return ProgramError(fmt::format("view {:#x} was asked for, and is not newer than {:#x}",
                                    view->number, newer_than));
  if (view.ok() && view->shards.size() != gradients_.size())
    return ConfigurationError(fmt::format("view {:#x} has {} shards, the layout {}", view->number,
                                          view->shards.size(), gradients_.size()));
  return view;
}

void ClientImpl::Begin(uint64_t sequence, int64_t lease, std::vector<double> learning_rates) {
  absl::MutexLock lock(&mutex_);
  sequence_ = sequence;
  lease_ = lease;
  learning_rates_ = std::move(learning_rates);
  for (std::vector<Acknowledged>& of_channel : acknowledged_) of_channel.clear();
  bytes_ = 0;
  resumed_ = 0;
}

ChunkPush ClientImpl::PushLocked(int shard, int chunk, std::span<const float> gradient,
                                 int64_t pulled) const {
  return {{options_.worker, options_.incarnation, sequence_, lease_},
          pulled,
          learning_rates_[options_.layout.chunks[shard][chunk].optimizer],
          gradient};
}

void ClientImpl::Launch(int shard, int chunk, What what) {
  const Chunk& place = options_.layout.chunks[shard][chunk];
  Transfer transfer{chunk, {}};
  {
    absl::MutexLock lock(&mutex_);
    OpenLocked(1);
    // The pull's number of updates includes all earlier pushes of this client, because they are
    // answered. They therefore do not count as staleness.
    const int64_t pulled = known_[shard][chunk].updates;
    if (what == What::kNothing) {
      transfer.what = DensePull{pulled};
    } else {
      ChunkPush push =
          PushLocked(shard, chunk, gradients(shard).subspan(place.begin, place.elements()), pulled);
      push.floor = what == What::kDifference;
      transfer.what = push;
    }
  }
  channels_[ChannelOf(shard, chunk)]->Launch({&transfer, 1});
}

void ClientImpl::LaunchAll(const ByChannel& transfers) {
  for (size_t channel = 0; channel < transfers.size(); ++channel)
    if (!transfers[channel].empty()) channels_[channel]->Launch(transfers[channel]);
}

void ClientImpl::PulledLocked(int64_t others, RowPull* pull) {
  pull->others = others;
  RowFetch* const fetch = pull->fetch;
  if (--fetch->open > 0) return;
  changed_.SignalAll();
  std::erase_if(fetches_, [fetch](const auto& held) { return held.get() == fetch; });
}

void ClientImpl::Answered(int channel, std::span<const ChunkAnswer> answers, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  for (const ChunkAnswer& answer : answers) {
    Known& known = known_[channel / each()][answer.transfer.chunk];
    if (RowPull* const pull = answer.transfer.rows()) {
      PulledLocked(answer.pushed.updates - known.own, pull);
      continue;
    }
    known.updates = answer.pushed.updates;
    if (answer.transfer.push() != nullptr) {
      known.own += answer.pushed.refused ? 0 : 1;
      acknowledged_[channel].push_back({view, answer.transfer, answer.pushed});
    }
    bytes_ += answer.bytes;
    OpenLocked(-1);
    if (open_ == 0) changed_.SignalAll();
  }
}

std::vector<Transfer> ClientImpl::Reopen(int channel, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  std::vector<Acknowledged>& all = acknowledged_[channel];
  const auto lost = std::stable_partition(
      all.begin(), all.end(), [view](const Acknowledged& one) { return one.view > view; });
  std::vector<Transfer> transfers;
  for (auto one = lost; one != all.end(); ++one) transfers.push_back(one->transfer);
  all.erase(lost, all.end());
  OpenLocked(static_cast<int64_t>(transfers.size()));
  resumed_ += transfers.empty() ? 0 : 1;
  return transfers;
}

absl::StatusOr<PushPullClient::Outcome> ClientImpl::Finish() {
  absl::MutexLock lock(&mutex_);
  while (!Settled(open_)) changed_.Wait(&mutex_);
  MUSTER_RETURN_IF_ERROR(status_);
  Outcome outcome;
  outcome.bytes = bytes_;
  outcome.resumed = resumed_;
  outcome.views.resize(gradients_.size());
  int64_t applied = 0;
  for (size_t channel = 0; channel < acknowledged_.size(); ++channel) {
    const int shard = static_cast<int>(channel) / each();
    for (const auto& [view, transfer, pushed] : std::exchange(acknowledged_[channel], {})) {
      if (pushed.refused) {
        outcome.refused.emplace(shard, transfer.chunk);
        continue;
      }
      uint64_t& oldest = outcome.views[shard];
      oldest = oldest == 0 ? view : std::min(oldest, view);
      // If the chunk already contained the push, the reported staleness includes the push.
      if (!pushed.applied) continue;
      ++applied;
      outcome.staleness_max = std::max(outcome.staleness_max, pushed.staleness);
      outcome.staleness_mean += static_cast<double>(pushed.staleness);
    }
  }
  if (applied > 0) outcome.staleness_mean /= static_cast<double>(applied);
  return outcome;
}

absl::Status ClientImpl::Pull() {
  Begin(0, 0, {});
  ByChannel transfers(channels_.size());
  {
    absl::MutexLock lock(&mutex_);
    for (size_t shard = 0; shard < gradients_.size(); ++shard)
      for (size_t chunk = 0; chunk < options_.layout.chunks[shard].size(); ++chunk) {
        if (options_.layout.chunks[shard][chunk].rows()) continue;
        const auto number = static_cast<int>(chunk);
        transfers[ChannelOf(static_cast<int>(shard), number)].push_back({number, DensePull{}});
        OpenLocked(1);
      }
  }
  LaunchAll(transfers);
  return Finish().status();
}

void ClientImpl::LaunchRows(std::span<const RowPush> pushes) {
  ByChannel transfers(channels_.size());
  {
    absl::MutexLock lock(&mutex_);
    OpenLocked(static_cast<int64_t>(pushes.size()));
    for (const auto& [shard, chunk, packed, others] : pushes)
      transfers[ChannelOf(shard, chunk)].push_back(
          {chunk, PushLocked(shard, chunk, packed, others + known_[shard][chunk].own)});
  }
  LaunchAll(transfers);
}

void ClientImpl::FetchRows(const std::vector<std::shared_ptr<RowFetch>>& fetches) {
  ByChannel transfers(channels_.size());
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<RowFetch>& fetch : fetches) {
      fetch->open = fetch->pulls.size();
      if (fetch->open > 0) fetches_.insert(fetch);
    }
  }
  for (const std::shared_ptr<RowFetch>& fetch : fetches)
    for (RowPull& pull : fetch->pulls) {
      pull.fetch = fetch.get();
      transfers[ChannelOf(pull.shard, pull.chunk)].push_back({pull.chunk, &pull});
    }
  LaunchAll(transfers);
}

absl::Status ClientImpl::Await(const RowFetch& fetch) {
  absl::MutexLock lock(&mutex_);
  while (!Settled(fetch.open)) changed_.Wait(&mutex_);
  return status_;
}

void ClientImpl::Abort(absl::Status why) {
  {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(why);
    changed_.SignalAll();
  }
  for (const auto& channel : channels_) channel->Stop();
}

absl::Status Check(const ClientOptions& options) {
  const std::vector<int64_t>& elements = options.layout.elements;
  if (options.parameters.size() != elements.size())
    return ConfigurationError(fmt::format("parameters of {} shards were given, there are {}",
                                          options.parameters.size(), elements.size()));
  for (size_t shard = 0; shard < elements.size(); ++shard) {
    size_t covered = 0;
    for (const std::span<float> span : options.parameters[shard]) covered += span.size();
    if (covered != static_cast<size_t>(elements[shard]))
      return ConfigurationError(fmt::format("shard {} has {} elements, memory for {} was given",
                                            shard, elements[shard], covered));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushPullClient>> PushPullClient::Make(ClientOptions options) {
  MUSTER_RETURN_IF_ERROR(Check(options));
  auto client = std::make_unique<ClientImpl>(std::move(options));
  client->Start();
  return client;
}

}  // namespace muster::push_pull
