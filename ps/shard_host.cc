#include "ps/shard_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/fan_out.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/process/cores.h"
#include "common/flight/spans.h"
#include "common/push_pull/wire.h"
#include "ps/replication/replication.h"
#include "ps/replication/replication_wire.h"
#include "ps/server_connection.h"

namespace muster::ps {
namespace {

using push_pull::SendError;
using push_pull::TableStatistics;
using transport::DataConnection;
using StorePtr = std::shared_ptr<ShardStore>;

// The maximum delay before a connection is accepted if the listener's signal is lost.
constexpr Duration kLook = std::chrono::milliseconds(50);

// The current view with its connections and stores.
struct Run {
  PsView view;
  transport::AbortSignal abort;
  std::unique_ptr<transport::Admission> admission;
  // The stores from which this process serves workers, and those of them that have a backup. Keyed
  // by shard.
  std::map<int, StorePtr> primary_of;
  std::map<int, std::shared_ptr<ReplicatedStore>> replicated;
  std::map<int, std::shared_ptr<BackupShard>> backup_of;
};
using RunPtr = std::shared_ptr<Run>;

struct Serving {
  std::thread thread;
  std::atomic<bool> done = false;
};

class ShardHostImpl final : public ShardHost {
 public:
  ShardHostImpl(ShardSpec spec, PsServiceOptions options)
      : spec_(std::move(spec)),
        options_(options),
        chief_(options.chief_silence),
        acceptor_([this] { Accept(); }) {}
  ~ShardHostImpl() override { Stop(); }

  const ShardSpec& spec() const override { return spec_; }
  void OnChiefContact() override { chief_.OnContact(); }
  absl::Status SetView(const PsView& view) override;
  void SetWorkers(WorkersVersion version, const std::map<int, uint64_t>& incarnations) override;
  absl::Status Restore(int shard, int chunk, ChunkState state, Piece piece) override;
  absl::StatusOr<std::vector<float>> PullRows(int variable,
                                              std::span<const uint64_t> keys) const override;
  absl::StatusOr<std::map<int, ShardCut>> CutPrimaries() const override;
  uint64_t view() const override {
    absl::MutexLock lock(&mu_);
    return view_.number;
  }
  int64_t newest_lease() const override { return newest_lease_; }
  std::vector<int> serving() const override;
  std::vector<int> synced(std::string* last_error) const override;
  std::map<int, Duration> waiting() const override;
  std::map<int, TableStatistics> tables() const override;
  PsStatus status() const override;
  void Stop() override;

 private:
  void EndRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<ShardCut> CutShard(int shard, const StorePtr& store) const;
  StorePtr MakeStoreLocked(int shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PlaceLocked(int shard, const PsView::Place& place, Run* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked(StorePtr* store) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ReplicationOptions ReplicationLocked(int shard, Run* run) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Accept();
  // Serves a connection. Closes the connection if there is no memory for its requests.
  void Serve(Run& run, DataConnection& connection);
  void ServeOne(Run& run, DataConnection& connection);
  void ServePrimary(Run& run, DataConnection& connection);

  const ShardSpec spec_;
  const PsServiceOptions options_;
  ChiefContact chief_;
  std::atomic<int64_t> newest_lease_ = 0;
  LogRateLimiter refused_lines_{1, std::chrono::seconds(10)};

  absl::Mutex turn_;  // Held while a view ends or begins. Locked before mu_.
  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  PsView view_ ABSL_GUARDED_BY(mu_);
  RunPtr run_ ABSL_GUARDED_BY(mu_);  // The run of view_. Null between two views.
  std::list<Serving> serving_ ABSL_GUARDED_BY(mu_);
  std::map<int, StorePtr> stores_ ABSL_GUARDED_BY(mu_);  // Keyed by shard.
  WorkersVersion workers_version_ ABSL_GUARDED_BY(mu_) = {};
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);
  int64_t past_updates_ ABSL_GUARDED_BY(mu_) = 0;  // The updates of deleted stores.

  std::thread acceptor_;  // Declared last, because it uses all members above.
};

// ---- Views

absl::Status ShardHostImpl::SetView(const PsView& view) {
  absl::MutexLock turn(&turn_);
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::UnavailableError("this parameter server is ending");
    if (view.number < view_.number)
      return absl::FailedPreconditionError(
          fmt::format("view {:#x} is older than {:#x}, which this parameter server has",
                      view.number, view_.number));
    if (view.number == view_.number && view != view_)
      return ConfigurationError(fmt::format("there are two different views {:#x}", view.number));
    // Without a run, an earlier call for this view failed halfway, for example for lack of memory.
    if (view.number == view_.number && run_ != nullptr) return absl::OkStatus();
  }
  EndRun();
  auto run = std::make_shared<Run>();
  run->view = view;
  absl::MutexLock lock(&mu_);
  view_ = view;
  for (int shard = 0; shard < static_cast<int>(view.shards.size()); ++shard)
    PlaceLocked(shard, view.shards[shard], run.get());
  run->admission = options_.listener->Admit(view.number, transport::kAnyone, view.ticket);
  run_ = std::move(run);
  return absl::OkStatus();
}

void ShardHostImpl::PlaceLocked(int shard, const PsView::Place& place, Run* run) {
  StorePtr& store = stores_[shard];
  if (place.primary == options_.task) {
    if (store == nullptr) store = MakeStoreLocked(shard);
    run->primary_of[shard] = store;
    if (place.backup < 0) return;
    run->replicated[shard] = ReplicatedStore::Make(store, ReplicationLocked(shard, run));
    run->primary_of[shard] = run->replicated[shard];
  } else if (place.backup == options_.task && place.primary >= 0) {
    // A store that is not in sync may have updates that the primary does not have.
    if (store != nullptr && !place.backup_in_sync) ForgetLocked(&store);
    if (store == nullptr) store = MakeStoreLocked(shard);
    run->backup_of[shard] = BackupShard::Make(store, ReplicationLocked(shard, run));
  } else if (place.primary >= 0) {
    // Another task is the primary. The store of a shard without a primary is kept, because it may
    // have been filled for the next view.
    ForgetLocked(&store);
  }
  if (store == nullptr) stores_.erase(shard);
}

void ShardHostImpl::ForgetLocked(StorePtr* store) {
  if (*store != nullptr) past_updates_ = std::max(past_updates_, (*store)->applied());
  *store = nullptr;
}

ReplicationOptions ShardHostImpl::ReplicationLocked(int shard, Run* run) const {
  const PsView::Place& place = run->view.shards[shard];
  ReplicationOptions options;
  options.shard = shard;
  options.layout = spec_.digest;
  options.chunks = static_cast<int>(spec_.layout.chunks[shard].size());
  options.checksum = spec_.checksum;
  options.compression = spec_.compression;
  options.in_sync = place.backup_in_sync;
  options.stall = options_.stall;
  options.new_view = options_.new_view;
  options.abort = &run->abort;
  options.listener = options_.listener;
  options.task = options_.task;
  options.backup = place.backup;
  options.view = run->view.number;
  options.ticket = run->view.ticket;
  options.address = place.backup_address;
  return options;
}

void ShardHostImpl::EndRun() {
  RunPtr run;
  std::list<Serving> serving;
  {
    absl::MutexLock lock(&mu_);
    run = std::exchange(run_, nullptr);
    serving.swap(serving_);
  }
  if (run != nullptr) {
    run->abort.Set();
    for (const auto& [shard, store] : run->replicated) store->Close();
    for (const auto& [shard, backup] : run->backup_of) backup->Close();
  }
  for (Serving& s : serving) s.thread.join();
}

void ShardHostImpl::Stop() {
  {
    absl::MutexLock turn(&turn_);
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
    }
    EndRun();
  }
  if (acceptor_.joinable()) acceptor_.join();
}

// ---- Connections

void ShardHostImpl::Accept() {
  for (uint64_t seen = 0;; options_.listener->WaitForChange(&seen, kLook)) {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    for (auto s = serving_.begin(); s != serving_.end();) {
      if (!s->done) {
        ++s;
        continue;
      }
      s->thread.join();
      s = serving_.erase(s);
    }
    try {
      while (auto connection = run_ == nullptr ? nullptr : run_->admission->TakeAny()) {
        std::list<Serving> one(1);
        one.front().thread =
            std::thread([this, &s = one.front(), run = run_, c = std::move(connection)]() mutable {
              Serve(*run, *c);
              c.reset();
              s.done = true;
            });
        serving_.splice(serving_.end(), one);
      }
    } catch (const std::system_error& error) {
      LogWarning("a data connection is closed: there is no thread for it ({})", error.what());
    } catch (const std::bad_alloc&) {
      LogWarning("a data connection is closed: no memory is left for it");
    }
  }
}

void ShardHostImpl::Serve(Run& run, DataConnection& connection) {
  try {
    ServeOne(run, connection);
  } catch (const std::bad_alloc&) {
    LogWarning(
        "the connection of task {} to shard {} is closed: no memory is left for what it sends",
        connection.info().from, connection.info().to);
  }
}

void ShardHostImpl::ServeOne(Run& run, DataConnection& connection) {
  const int shard = connection.info().to;
  if (const absl::Status may = CheckPeer(connection.info()); !may.ok()) {
    if (int64_t left_out = 0; refused_lines_.Take(&left_out))
      LogWarning("refused a data connection: {}", Message(may));
    return SendError(may, connection, run.abort);
  }
  if (connection.info().from >= kReplicaFrom) return ServePrimary(run, connection);
  const auto found = run.primary_of.find(shard);
  if (found == run.primary_of.end())
    return SendError(
        absl::UnavailableError(fmt::format("ps {} does not serve shard {} in view {:#x}",
                                           options_.task, shard, run.view.number)),
        connection, run.abort);
  ServeOptions options;
  options.layout = spec_.digest;
  options.chunks = spec_.layout.chunks[shard];
  for (const auto& [table, rows] : spec_.tables) options.widths[table] = rows.width;
  options.idle = options_.idle;
  options.stall = options_.stall;
  options.chief = &chief_;
  options.newest_lease = &newest_lease_;
  options.new_view = options_.new_view;
  options.shared_memory = options_.shared_memory.get();
  const SpanThread thread(options_.spans,
                          fmt::format("shard {}, worker {}", shard, connection.info().from));
  const absl::Status status = ps::Serve(connection, *found->second, options, run.abort);
  if (!status.ok() && !run.abort.is_set())
    LogInfo("the connection of worker {} to shard {} has ended: {}", connection.info().from, shard,
            Message(status));
}

void ShardHostImpl::ServePrimary(Run& run, DataConnection& connection) {
  const int shard = connection.info().to, task = connection.info().from - kReplicaFrom;
  const auto found = run.backup_of.find(shard);
  if (found == run.backup_of.end())
    return SendError(
        absl::UnavailableError(fmt::format("ps {} is no backup of shard {} in view {:#x}",
                                           options_.task, shard, run.view.number)),
        connection, run.abort);
  const absl::Status status = found->second->Serve(connection);
  if (!status.ok() && !run.abort.is_set())
    LogInfo("the connection of ps {}, the primary of shard {}, has ended: {}", task, shard,
            Message(status));
}

// ---- State

StorePtr ShardHostImpl::MakeStoreLocked(int shard) const {
  StorePtr store = ShardStore::Make({spec_.layout.chunks[shard], spec_.rules, spec_.tables,
                                     static_cast<int>(spec_.layout.chunks.size())});
  for (const auto& [worker, incarnation] : workers_) store->Admit(worker, incarnation);
  return store;
}

void ShardHostImpl::SetWorkers(WorkersVersion version,
                               const std::map<int, uint64_t>& incarnations) {
  absl::MutexLock lock(&mu_);
  if (version < workers_version_) return;
  workers_version_ = version;
  for (const auto& [worker, incarnation] : workers_) {
    const auto now = incarnations.find(worker);
    if (now != incarnations.end() && now->second == incarnation) continue;
    for (const auto& [shard, store] : stores_) store->Expel(worker);
  }
  for (const auto& [worker, incarnation] : incarnations)
    for (const auto& [shard, store] : stores_) store->Admit(worker, incarnation);
  workers_ = incarnations;
}

absl::Status ShardHostImpl::Restore(int shard, int chunk, ChunkState state, Piece piece) {
  if (shard < 0 || shard >= static_cast<int>(spec_.layout.chunks.size()))
    return ConfigurationError(
        fmt::format("there is no shard {}: the layout has {}", shard, spec_.layout.chunks.size()));
  StorePtr store;
  {
    absl::MutexLock lock(&mu_);
    StorePtr& held = stores_[shard];
    if (held == nullptr) held = MakeStoreLocked(shard);
    store = held;
    // The replicated store also changes the backup.
    if (run_ != nullptr && run_->replicated.contains(shard)) store = run_->replicated[shard];
  }
  return Annotate(store->Restore(chunk, std::move(state), piece), fmt::format("shard {}: ", shard));
}

absl::StatusOr<std::vector<float>> ShardHostImpl::PullRows(int variable,
                                                           std::span<const uint64_t> keys) const {
  const auto table = spec_.tables.find(variable);
  if (table == spec_.tables.end())
    return ConfigurationError(fmt::format("variable {} is no table", variable));
  const auto width = static_cast<size_t>(table->second.width);
  std::vector<float> rows(keys.size() * width);
  if (keys.empty()) return rows;
  const int servers = static_cast<int>(spec_.layout.chunks.size());
  const int shard = push_pull::PlaceOfRow(keys[0], servers).server;
  StorePtr store;
  {
    absl::MutexLock lock(&mu_);
    if (run_ != nullptr && run_->primary_of.contains(shard)) store = run_->primary_of[shard];
  }
  if (store == nullptr)
    return absl::UnavailableError(
        fmt::format("ps {} is not the primary of shard {}", options_.task, shard));
  std::vector<int> chunks;  // The table's chunks.
  for (size_t c = 0; c < spec_.layout.chunks[shard].size(); ++c)
    if (spec_.layout.chunks[shard][c].table == variable) chunks.push_back(static_cast<int>(c));
  for (size_t i = 0; i < keys.size(); ++i) {
    const push_pull::RowPlace place = push_pull::PlaceOfRow(keys[i], servers);
    if (place.server != shard)
      return ConfigurationError(fmt::format("keys {} and {} are of two shards", keys[0], keys[i]));
    MUSTER_RETURN_IF_ERROR(store
                               ->PullRows(chunks[place.chunk], keys.subspan(i, 1),
                                          std::span(rows).subspan(i * width, width))
                               .status());
  }
  return rows;
}

absl::StatusOr<ShardCut> ShardHostImpl::CutShard(int shard, const StorePtr& store) const {
  const std::vector<push_pull::Chunk>& chunks = spec_.layout.chunks[shard];
  ShardCut cut;
  cut.store = store;
  cut.chunks.resize(chunks.size());
  std::vector<int> of_tables;
  for (int c = 0; c < static_cast<int>(chunks.size()); ++c) {
    if (chunks[c].rows()) {
      of_tables.push_back(c);
    } else {
      MUSTER_ASSIGN_OR_RETURN(cut.chunks[c], store->FreezeDense(c));
    }
  }
  std::vector<ShardStore::FrozenRows> rows(of_tables.size());
  const auto threads = std::min<size_t>(AvailableCores(), 64);
  MUSTER_RETURN_IF_ERROR(FanOut(rows.size(), threads, [&](size_t i) -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(rows[i], store->Freeze(of_tables[i]));
    return absl::OkStatus();
  }));
  std::map<int, RowsFile::Table> tables;
  for (size_t i = 0; i < rows.size(); ++i)
    tables[chunks[of_tables[i]].table].chunks.push_back(std::move(rows[i]));
  if (tables.empty()) return cut;
  std::vector<RowsFile::Table> all;
  for (auto& [variable, table] : tables) {
    table.name = spec_.table_names.at(variable);
    table.columns = push_pull::EmbeddingTable::Columns(spec_.tables.at(variable));
    all.push_back(std::move(table));
  }
  MUSTER_ASSIGN_OR_RETURN(cut.rows, RowsFile::Make(std::move(all)));
  return cut;
}

// Freezes the content instead of copying it, because all workers wait during this call.
absl::StatusOr<std::map<int, ShardCut>> ShardHostImpl::CutPrimaries() const {
  std::map<int, StorePtr> stores;  // Stores outlive the view.
  {
    absl::MutexLock lock(&mu_);
    if (run_ == nullptr) return std::map<int, ShardCut>();
    for (const auto& [shard, store] : run_->primary_of) stores[shard] = stores_.at(shard);
  }
  std::map<int, ShardCut> cuts;
  for (const auto& [shard, store] : stores) {
    absl::StatusOr<ShardCut> cut = CutShard(shard, store);
    if (!cut.ok()) return Annotate(cut.status(), fmt::format("shard {}: ", shard));
    cuts.emplace(shard, *std::move(cut));
  }
  return cuts;
}

std::vector<int> ShardHostImpl::serving() const {
  absl::MutexLock lock(&mu_);
  std::vector<int> whole;
  for (const auto& [shard, store] : stores_) {
    if (!store->serving()) continue;
    if (run_ != nullptr) {
      const auto backup = run_->backup_of.find(shard);
      if (backup != run_->backup_of.end() && !backup->second->in_sync()) continue;
    }
    whole.push_back(shard);
  }
  return whole;
}

std::vector<int> ShardHostImpl::synced(std::string* last_error) const {
  absl::MutexLock lock(&mu_);
  std::vector<int> synced;
  if (run_ == nullptr) return synced;
  for (const auto& [shard, store] : run_->replicated) {
    if (store->synced()) synced.push_back(shard);
    if (last_error->empty()) *last_error = store->last_error();
  }
  return synced;
}

std::map<int, Duration> ShardHostImpl::waiting() const {
  absl::MutexLock lock(&mu_);
  std::map<int, Duration> waiting;
  if (run_ == nullptr) return waiting;
  for (const auto& [shard, store] : run_->replicated)
    if (const Duration d = store->waiting(); d != Duration::zero()) waiting[shard] = d;
  return waiting;
}

std::map<int, TableStatistics> ShardHostImpl::tables() const {
  RunPtr run;
  {
    absl::MutexLock lock(&mu_);
    run = run_;
  }
  std::map<int, TableStatistics> all;
  if (run == nullptr || spec_.tables.empty()) return all;
  for (const auto& [shard, store] : run->primary_of)
    for (const auto& [table, statistics] : store->tables()) all[table] += statistics;
  return all;
}

PsStatus ShardHostImpl::status() const {
  absl::MutexLock lock(&mu_);
  PsStatus status;
  status.view = view_.number;
  for (size_t shard = 0; shard < view_.shards.size(); ++shard) {
    if (view_.shards[shard].primary == options_.task) status.primary_of.push_back(shard);
    if (view_.shards[shard].backup == options_.task) status.backup_of.push_back(shard);
  }
  status.updates = past_updates_;
  for (const auto& [shard, store] : stores_)
    status.updates = std::max(status.updates, store->applied());
  for (const Serving& s : serving_) status.connections += !s.done;
  return status;
}

}  // namespace

std::unique_ptr<ShardHost> ShardHost::Make(ShardSpec spec, PsServiceOptions options) {
  return std::make_unique<ShardHostImpl>(std::move(spec), options);
}

}  // namespace muster::ps
