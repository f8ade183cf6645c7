#include "chief/parameter_server/shard_rollback.h"

#include <fmt/format.h>

#include <memory>
#include <thread>
#include <vector>

#include "chief/shards/row_filler.h"
#include "common/base/logging.h"

namespace muster::chief {

// Sends the shard chunk by chunk, so that this process never holds a whole shard.
absl::Status ShardRollback::FillShard(int shard, ShardClient::Filling* filling) const {
  const std::vector<push_pull::Chunk>& chunks = setup_.layout.chunks[shard];
  for (int chunk = 0; chunk < static_cast<int>(chunks.size()); ++chunk) {
    if (chunks[chunk].rows()) continue;
    const auto content = state_.Encode(setup_.layout, shard, chunk, kept_.state.step,
                                       kept_.files ? &*kept_.files : nullptr);
    if (!content.ok())
      return Annotate(content.status(),
                      fmt::format("cannot restore shard {} as it was after step {}: ", shard,
                                  kept_.state.step));
    MUSTER_RETURN_IF_ERROR(filling->Write(*content));
  }
  return absl::OkStatus();
}

absl::Status ShardRollback::FillAll(const DirectorState::Targets& targets) {
  std::vector<std::unique_ptr<ShardClient::Filling>> fillings;
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(targets.size());
  RowFiller::Fillings by_shard;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto [shard, task] = targets[i];
    if (setup_.layout.chunks[shard].empty()) continue;
    ShardClient::Filling* filling =
        fillings.emplace_back(members_.links()->client(task).Fill()).get();
    by_shard[shard].push_back(filling);
    threads.emplace_back([this, filling, shard = shard, result = &results[i]] {
      *result = FillShard(shard, filling);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) MUSTER_RETURN_IF_ERROR(result);
  RowFiller rows(setup_.layout, by_shard);
  const checkpoint::RowSources sources = kept_.files ? kept_.files->rows : checkpoint::RowSources();
  for (const ServedTable& table : setup_.tables) MUSTER_RETURN_IF_ERROR(rows.Fill(table, sources));
  for (const auto& filling : fillings) MUSTER_RETURN_IF_ERROR(filling->Finish());
  return absl::OkStatus();
}

absl::Status ShardRollback::RestoreShards() {
  DirectorState::Targets targets;
  std::vector<uint64_t> incarnations;
  {
    DirectorMembers::Lock lock(&members_);
    ShardServers& servers = lock->servers();
    // All tasks must first have the view without these shards, because it ends all pushes to them.
    if (Complete(servers.placements()) || !servers.all_have_view()) return absl::OkStatus();
    targets = servers.TakeUnserved(Clock::now());
    for (const auto& [shard, task] : targets)
      incarnations.push_back(servers.member(task).incarnation);
  }
  if (targets.empty()) return absl::OkStatus();
  // If loading failed, the shards would get the values that build() made.
  MUSTER_RETURN_IF_ERROR(kept_.unloaded);
  const absl::Status filled = FillAll(targets);
  DirectorMembers::Lock lock(&members_);
  if (!filled.ok() && !ShardClient::MayRetry(filled)) return filled;
  for (size_t i = 0; i < targets.size(); ++i)
    if (lock->servers().member(targets[i].second).incarnation != incarnations[i])
      return absl::OkStatus();
  if (!filled.ok()) {
    LogWarning("{}; the chief retries", Message(filled));
    return absl::OkStatus();
  }
  lock->Restored(targets, kept_.state.step);
  lock.AnswerHeld();
  return absl::OkStatus();
}

void ShardRollback::RetainWeights() {
  if (!kept_.files) state_.RetainWeights();
}

void ShardRollback::Commit(Cut cut) {
  if (!cut.write && (kept_.files || !setup_.tables.empty())) return;
  // The files have a callback's weights, not those of the servers, and training is over.
  if (cut.write && !cut.put_back.empty()) return;
  kept_.state = std::move(cut.state);
  if (cut.write) kept_.files = std::move(cut.files);
  if (cut.write) kept_.unloaded = absl::OkStatus();
  state_.ReleaseWeights();  // Encode without files then uses the replica's current weights.
  DirectorMembers::Lock lock(&members_);
  lock->work().ledger().CommitCut();
}

}  // namespace muster::chief
