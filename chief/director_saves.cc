// Checkpoints as cuts: leases that are out complete, the servers copy their shards in memory,
// leases go on, and the copies are read while workers train.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "chief/director_impl.h"
#include "common/base/logging.h"
#include "common/checkpoint/manifest.h"

namespace muster {
namespace {

absl::Status NotSaved(int64_t step, const absl::Status& why) {
  return StatusFor(
      ExitCode::kRetryable,
      fmt::format("the state after step {} could not be saved: {}", step, Message(why)));
}

}  // namespace

absl::Status DirectorImpl::Cut(const std::vector<int>& primaries, const std::string& name) {
  const std::set<int> tasks(primaries.begin(), primaries.end());
  std::vector<std::pair<int, ShardClient*>> clients;
  {
    absl::MutexLock lock(&mu_);
    for (const int task : tasks) clients.emplace_back(task, servers_[task]->client.get());
  }
  std::vector<absl::StatusOr<std::vector<int>>> results(clients.size(), std::vector<int>());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i)
    threads.emplace_back([&, i] { results[i] = clients[i].second->Cut(name); });
  for (std::thread& thread : threads) thread.join();
  std::set<int> copied;
  for (const auto& result : results) {
    MUSTER_RETURN_IF_ERROR(result.status());
    copied.insert(result->begin(), result->end());
  }
  for (size_t shard = 0; shard < primaries.size(); ++shard)
    if (!copied.contains(static_cast<int>(shard)) && !layout_.chunks[shard].empty())
      return PeerLost(fmt::format("ps {} did not copy shard {}", primaries[shard], shard));
  return absl::OkStatus();
}

// REQUIRES: a save is wanted, nothing is out, all shards are served.
absl::Status DirectorImpl::TryCut() {
  auto save = std::make_unique<Save>();
  bool stopping;
  {
    absl::MutexLock lock(&mu_);
    stopping = stop_;
    save->state = table_->state();
    table_->ledger().Keep(save->state.step);
    for (const ShardPlacement& shard : placements_) save->primaries.push_back(shard.primary);
    const bool over = table_->through() || Stopping();
    save->must = (stop_ || over) && (!callbacks_ || save_wanted_);
    save->for_callbacks = cut_for_callbacks_;
    save->replaces = over && callbacks_ && callbacks_->ended;
    save->integers = integers_;
  }
  save->state.validation_due = validation_due_;
  save->state.test_due = test_due_;
  save->state.global_batch_size = global_batch_size_;
  save->state.extras.callbacks = callbacks_;
  // As of a loop that calls all hooks of a step: such a one may go on with it.
  if (auto& callbacks = save->state.extras.callbacks)
    callbacks->steps_begun = callbacks->steps_ended = save->state.step;
  save->state.extras.finished = Stopping() && callbacks_->ended;
  if (save_wanted_) save->put_back = WeightsPutBack();
  save->histograms = cut_for_histograms_;
  save->write = save_wanted_;
  const int64_t step = save->state.step;
  if (save->write && save->must) {
    SaveMoment moment;
    moment.step = step;
    moment.epoch = std::max<int64_t>(0, save->state.epoch - (save->state.offset == 0 ? 1 : 0));
    moment.epoch_end = save->state.offset == 0;
    moment.last = (Through(save->state) || Stopping()) && (!callbacks_ || callbacks_->ended);
    moment.stopping = stopping;
    // May wait for the save before, within its deadline; what is not wanted is Drain's to tell.
    save->write = start_.checkpoints->Wanted(moment);
  }
  const MonotonicTime start = Clock::now();
  const absl::Status cut = Cut(save->primaries, checkpoint::CheckpointName(step));
  if (!cut.ok()) return GiveUpCut(cut);
  if (save->write) Tell([&](Observer* observer) { observer->OnSave(step); });
  LogDebug("a cut of {} shards after step {} took {:.3f} s", save->primaries.size(), step,
           Seconds(Clock::now() - start));
  save_wanted_ = cut_for_histograms_ = cut_for_callbacks_ = false;
  if (save->must) saved_ = {step, !callbacks_ || callbacks_->ended};
  save_ = std::move(save);
  {
    absl::MutexLock lock(&mu_);
    save_done_ = false;
  }
  saver_ = std::thread([this] { RunSave(); });
  return absl::OkStatus();
}

// A ps that is lost changes the view, with which it is tried again, as long as a save may take: so
// is what is not served at all. REQUIRES: cut_wanted_at_.
absl::Status DirectorImpl::GiveUpCut(const absl::Status& why) {
  if (!ShardClient::MayRetry(why)) return why;
  if (Clock::now() - *cut_wanted_at_ < SaveDeadline()) {
    SayWaiting(fmt::format("a copy of all shards ({})", Message(why)));
    return absl::OkStatus();
  }
  absl::MutexLock lock(&mu_);
  const absl::Status failed = NotSaved(table_->steps(), why);
  // Nor do callbacks go on without it: they would ask for the next one.
  if (stop_ || table_->through() || Stopping() || cut_for_callbacks_) return failed;
  LogWarning("{}; training goes on", Message(failed));
  save_wanted_ = cut_for_histograms_ = false;
  cut_wanted_at_.reset();
  return absl::OkStatus();
}

// The rows of tables go straight to a file.
absl::Status DirectorImpl::ReadShard(int shard, ShardClient& client, Save* save) {
  if (layout_.chunks[shard].empty()) return absl::OkStatus();
  const std::string name = checkpoint::CheckpointName(save->state.step);
  MUSTER_ASSIGN_OR_RETURN(save->contents[shard], client.Read(name, shard));
  if (tables_.empty() || !save->write) return absl::OkStatus();
  const int shards = static_cast<int>(layout_.chunks.size());
  auto& file = save->staged[shard];
  MUSTER_ASSIGN_OR_RETURN(file,
                          start_.checkpoints->StageFile(checkpoint::TablesFile(shard, shards)));
  MUSTER_RETURN_IF_ERROR(
      client.ReadRows(name, shard, [&](std::string_view bytes) { return file->Append(bytes); }));
  MUSTER_RETURN_IF_ERROR(file->Finish());
  MUSTER_ASSIGN_OR_RETURN(save->rows[shard], file->Open());
  return absl::OkStatus();
}

// On a thread besides.
void DirectorImpl::RunSave() {
  Save& save = *save_;
  const MonotonicTime start = Clock::now();
  const std::string name = checkpoint::CheckpointName(save.state.step);
  std::vector<ShardClient*> clients;
  {
    absl::MutexLock lock(&mu_);
    for (const int primary : save.primaries) clients.push_back(servers_[primary]->client.get());
  }
  save.contents.resize(clients.size());
  if (!tables_.empty() && save.write) {
    save.staged.resize(clients.size());
    save.rows.resize(clients.size());
  }
  std::vector<absl::Status> results(clients.size());
  std::vector<std::thread> threads;
  for (size_t shard = 0; shard < clients.size(); ++shard)
    threads.emplace_back([&, shard] {
      results[shard] = ReadShard(static_cast<int>(shard), *clients[shard], &save);
    });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results)
    if (!result.ok()) save.status = result;
  if (!save.staged.empty())
    LogDebug("rows of {} shards were written in {:.3f} s", save.staged.size(),
             Seconds(Clock::now() - start));
  if (save.status.ok()) save.status = state_->Decode(layout_, save.contents);
  if (save.status.ok()) save.status = state_->SetIntegers(save.integers);
  if (save.status.ok() && !save.put_back.empty()) state_->PutBackWeights(save.put_back);
  if (save.status.ok() && save.write) {
    auto snapshot = state_->Take(save.state);
    save.status = snapshot.status();
    if (snapshot.ok()) save.snapshot = *std::move(snapshot);
    if (save.snapshot) {
      save.snapshot->replaces = save.replaces;
      save.snapshot->staged = std::move(save.staged);
    }
  }
  for (ShardClient* client : std::set<ShardClient*>(clients.begin(), clients.end()))
    (void)client->Drop(name);  // else the next copy takes its place
  save.seconds = Seconds(Clock::now() - start);
  absl::MutexLock lock(&mu_);
  save_done_ = true;
  WakeLocked();
}

// What the thread brought, if it is through.
absl::Status DirectorImpl::TakeSave() {
  {
    absl::MutexLock lock(&mu_);
    if (save_ == nullptr || !save_done_) return absl::OkStatus();
  }
  saver_.join();
  const std::unique_ptr<Save> save = std::move(save_);
  const bool needed = save->must || save->for_callbacks;
  if (needed && ShardClient::MayRetry(save->status)) {
    save_wanted_ = save->write;
    cut_for_callbacks_ = save->for_callbacks;
    if (save->must) saved_ = {};
    return GiveUpCut(save->status);
  }
  cut_wanted_at_.reset();
  if (!save->status.ok()) {
    if (needed) return NotSaved(save->state.step, save->status);
    LogWarning("{}; training goes on", Message(NotSaved(save->state.step, save->status)));
    return absl::OkStatus();
  }
  // Rows that were not written are known to nobody but the servers: then the state before stays.
  if (tables_.empty() || save->write) {
    kept_ = std::move(save->contents);
    kept_rows_ = std::move(save->rows);
    unloaded_ = absl::OkStatus();
    kept_state_ = save->state;
  }
  weights_step_ = save->state.step;
  if (save->snapshot) start_.checkpoints->Save(*std::move(save->snapshot));
  if (save->histograms)
    for (HistogramReport& report : state_->Parameters()) {
      report.step = save->state.step;
      Tell([&](Observer* observer) { observer->OnHistogram("train", report); });
    }
  return absl::OkStatus();
}

}  // namespace muster
