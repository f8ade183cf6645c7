#include "common/push_pull/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/push_pull/lane.h"
#include "common/push_pull/view_keeper.h"

namespace muster::ps {
namespace {

// Gradients of one shard, in memory that a server of this host can be shown.
struct GradientMemory {
  std::unique_ptr<transport::SharedMemory> shared;
  std::vector<float> own;  // where there is none
  std::span<float> floats() { return shared ? shared->floats() : std::span<float>(own); }
};

class ClientImpl final : public PushPullClient {
 public:
  explicit ClientImpl(ClientOptions options) : options_(std::move(options)) {}
  ~ClientImpl() override {
    Abort(Superseded("the client is closing"));
    views_->Stop();  // it calls into this object
    lanes_.clear();
  }

  void Start();
  std::span<float> gradients(int shard) override { return gradients_[shard].floats(); }
  void Begin(const Push& push) override { BeginErrand({true, push, 0}); }
  using PushPullClient::Launch;
  void Launch(int shard, int chunk, What what) override;
  absl::StatusOr<Outcome> Finish() override;
  absl::Status Pull() override;
  void LaunchRows(int shard, int chunk, std::span<const float> packed, int64_t others) override;
  void FetchRows(std::shared_ptr<RowFetch> fetch) override;
  absl::Status Await(const RowFetch& fetch) override;
  void Abort(absl::Status why) override;

 private:
  absl::StatusOr<ClientView> NextView(uint64_t newer_than);
  void BeginErrand(Errand errand);
  void Answered(int lane, const ChunkAnswer& answer, uint64_t view);
  bool Reopen(int lane, uint64_t errand, uint64_t view);
  int each() const { return static_cast<int>(options_.options.connections); }
  int LaneOf(int shard, int chunk) const { return shard * each() + chunk % each(); }
  // With so many answers to come: nothing more happens to the user's memory.
  bool Settled(size_t open) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return status_.ok() ? open == 0 : running_ == 0;
  }

  const ClientOptions options_;
  std::vector<GradientMemory> gradients_;
  std::unique_ptr<ViewKeeper> views_;
  std::vector<std::unique_ptr<Lane>> lanes_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // lanes
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;     // chunks that were launched and not answered
  std::set<std::shared_ptr<RowFetch>> fetches_ ABSL_GUARDED_BY(mutex_);  // under way
  int64_t pushed_ ABSL_GUARDED_BY(mutex_) = 0;  // chunks whose staleness is in outcome_
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);     // staleness_mean is the sum
  Errand errand_ ABSL_GUARDED_BY(mutex_);       // the last one
  bool over_ ABSL_GUARDED_BY(mutex_) = true;    // it is
  // By lane: how many chunks of the push were acknowledged in which view.
  std::vector<std::map<uint64_t, int64_t>> acknowledged_ ABSL_GUARDED_BY(mutex_);
  // By shard: not all that it got of the push was refused.
  std::vector<bool> took_ ABSL_GUARDED_BY(mutex_);
};

void ClientImpl::Start() {
  for (const int64_t elements : options_.layout.elements) {
    GradientMemory& memory = gradients_.emplace_back();
    if (!options_.host_id.empty() && elements > 0) {
      auto shared = transport::SharedMemory::Create(elements * sizeof(float));
      if (shared.ok()) {
        memory.shared = *std::move(shared);
      } else if (gradients_.size() == 1) {
        LogInfo("Parameter servers of this host are reached over TCP: {}",
                Message(shared.status()));
      }
    }
    if (!memory.shared) memory.own.resize(elements);
  }
  views_ = std::make_unique<ViewKeeper>(
      ViewKeeper::Options{[this](uint64_t newer_than) { return NextView(newer_than); },
                          [this] {
                            for (const auto& lane : lanes_) lane->Wake();
                          },
                          [this](const absl::Status& why) { Abort(why); }});
  {
    absl::MutexLock lock(&mutex_);
    running_ = options_.layout.elements.size() * static_cast<size_t>(options_.options.connections);
  }
  for (int i = 0; i < static_cast<int>(gradients_.size()) * each(); ++i) {
    lanes_.push_back(std::make_unique<Lane>(Lane::Options{
        &options_, i / each(), i % each(), gradients_[i / each()].floats(),
        gradients_[i / each()].shared.get(), views_.get(),
        [this, i](const ChunkAnswer& answer, uint64_t view) { Answered(i, answer, view); },
        [this, i](uint64_t errand, uint64_t view) { return Reopen(i, errand, view); },
        [this] {
          absl::MutexLock lock(&mutex_);
          ++outcome_.resumed;
        },
        [this](const absl::Status& why) { Abort(why); },
        [this] {
          absl::MutexLock lock(&mutex_);
          if (--running_ == 0) changed_.SignalAll();
        }}));
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

void ClientImpl::BeginErrand(Errand errand) {
  {
    absl::MutexLock lock(&mutex_);
    outcome_ = {};
    pushed_ = 0;
    errand.number = errand_.number + 1;
    errand_ = errand;
    over_ = false;
    acknowledged_.assign(lanes_.size(), {});
    took_.assign(gradients_.size(), false);
  }
  for (const auto& lane : lanes_) lane->Begin(errand);
}

void ClientImpl::Launch(int shard, int chunk, What what) {
  const int lane = LaneOf(shard, chunk);
  {
    absl::MutexLock lock(&mutex_);
    ++open_;
    // What is only pulled is no part of the push.
  }
  lanes_[lane]->Launch(chunk, what);
}

void ClientImpl::Answered(int lane, const ChunkAnswer& answer, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  if (RowPull* const pull = answer.request.pull; pull != nullptr) {
    pull->others = answer.others;
    RowFetch* const fetch = pull->fetch;
    if (--fetch->open > 0) return;
    changed_.SignalAll();
    std::erase_if(fetches_, [fetch](const auto& held) { return held.get() == fetch; });
    return;
  }
  if (answer.request.push()) ++acknowledged_[lane][view];
  if (answer.pushed.refused) {
    outcome_.refused.emplace(lane / each(), answer.request.chunk);
  } else if (answer.request.push()) {
    took_[lane / each()] = true;
  }
  outcome_.bytes += answer.bytes;
  // Of one that was there before, it counts the push itself.
  if (answer.request.push() && answer.pushed.applied) {
    ++pushed_;
    outcome_.staleness_max = std::max(outcome_.staleness_max, answer.pushed.staleness);
    outcome_.staleness_mean += static_cast<double>(answer.pushed.staleness);
  }
  if (--open_ == 0) changed_.SignalAll();
}

bool ClientImpl::Reopen(int lane, uint64_t errand, uint64_t view) {
  absl::MutexLock lock(&mutex_);
  if (over_ || errand != errand_.number) return false;
  std::map<uint64_t, int64_t>& acknowledged = acknowledged_[lane];
  const auto end = acknowledged.upper_bound(view);
  for (auto lost = acknowledged.begin(); lost != end; ++lost) open_ += lost->second;
  acknowledged.erase(acknowledged.begin(), end);
  ++outcome_.resumed;
  return true;
}

absl::StatusOr<PushPullClient::Outcome> ClientImpl::Finish() {
  absl::MutexLock lock(&mutex_);
  while (!Settled(open_)) changed_.Wait(&mutex_);
  over_ = true;
  MUSTER_RETURN_IF_ERROR(status_);
  Outcome outcome = outcome_;
  outcome.views.resize(gradients_.size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (acknowledged_[lane].empty() || !took_[lane / each()]) continue;
    uint64_t& oldest = outcome.views[lane / each()];
    const uint64_t view = acknowledged_[lane].begin()->first;
    oldest = oldest == 0 ? view : std::min(oldest, view);
  }
  if (pushed_ > 0) outcome.staleness_mean /= static_cast<double>(pushed_);
  return outcome;
}

absl::Status ClientImpl::Pull() {
  BeginErrand({false, {}, 0});
  for (size_t shard = 0; shard < gradients_.size(); ++shard)
    for (size_t chunk = 0; chunk < options_.layout.chunks[shard].size(); ++chunk)
      if (!options_.layout.chunks[shard][chunk].rows())
        Launch(static_cast<int>(shard), static_cast<int>(chunk));
  return Finish().status();
}

void ClientImpl::LaunchRows(int shard, int chunk, std::span<const float> packed, int64_t others) {
  const int lane = LaneOf(shard, chunk);
  {
    absl::MutexLock lock(&mutex_);
    ++open_;
  }
  ChunkRequest request;
  request.chunk = chunk;
  request.elements = static_cast<int64_t>(packed.size());
  request.gradient = packed;
  request.pulled = others;
  request.rows = true;
  lanes_[lane]->Launch({&request, 1});
}

void ClientImpl::FetchRows(std::shared_ptr<RowFetch> fetch) {
  if (fetch->pulls.empty()) return;
  {
    absl::MutexLock lock(&mutex_);
    fetch->open = fetch->pulls.size();
    fetches_.insert(fetch);
  }
  // To each lane at once, so that one system call takes them.
  std::vector<std::vector<ChunkRequest>> requests(lanes_.size());
  for (RowPull& pull : fetch->pulls) {
    pull.fetch = fetch.get();
    ChunkRequest& request = requests[LaneOf(pull.shard, pull.chunk)].emplace_back();
    request.chunk = pull.chunk;
    request.elements = static_cast<int64_t>(pull.rows.size());
    request.parameters = {&pull.rows, 1};
    request.rows = true;
    request.keys = pull.keys;
    request.pull = &pull;
  }
  for (size_t lane = 0; lane < requests.size(); ++lane)
    if (!requests[lane].empty()) lanes_[lane]->Launch(requests[lane]);
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
  for (const auto& lane : lanes_) lane->Stop();
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

absl::Status PushPullClient::PullRows(std::span<RowPull> pulls) {
  const auto fetch = std::make_shared<RowFetch>();
  fetch->pulls.assign(pulls.begin(), pulls.end());
  FetchRows(fetch);
  MUSTER_RETURN_IF_ERROR(Await(*fetch));
  for (size_t i = 0; i < pulls.size(); ++i) pulls[i].others = fetch->pulls[i].others;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PushPullClient>> PushPullClient::Make(ClientOptions options) {
  MUSTER_RETURN_IF_ERROR(Check(options));
  auto client = std::make_unique<ClientImpl>(std::move(options));
  client->Start();
  return client;
}

}  // namespace muster::ps
