#include "chief/checkpoint_cutter.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "common/base/logging.h"
#include "common/checkpoint/manifest.h"

namespace muster {
namespace {

// One thread for each item; the first error.
template <typename Items, typename Call>
absl::Status ForEach(const Items& items, const Call& call) {
  std::vector<absl::Status> results(items.size());
  std::vector<std::thread> threads;
  for (const auto& item : items)
    threads.emplace_back(
        [&call, item, result = &results[threads.size()]] { *result = call(item); });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) MUSTER_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace

CheckpointCutter::CheckpointCutter(const Layout& layout, ShardState* state, ServerLinks* links,
                                   CheckpointSink* sink, std::function<void()> on_read)
    : layout_(layout),
      state_(state),
      links_(links),
      sink_(sink),
      has_tables_(!state->tables().empty()),
      on_read_(std::move(on_read)) {}

CheckpointCutter::~CheckpointCutter() {
  if (thread_.joinable()) thread_.join();
}

CheckpointCutter::State CheckpointCutter::state() const {
  absl::MutexLock lock(&mu_);
  return now_;
}

absl::Status CheckpointCutter::Begin(Cut cut) {
  const std::string name = checkpoint::CheckpointName(cut.state.step);
  const MonotonicTime start = Clock::now();
  MUSTER_RETURN_IF_ERROR(Copy(cut.primaries, name));
  LogDebug("a cut of {} shards after step {} took {:.3f} s", cut.primaries.size(), cut.state.step,
           Seconds(Clock::now() - start));
  cut_ = std::move(cut);
  {
    absl::MutexLock lock(&mu_);
    now_ = State::kReading;
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status CheckpointCutter::Copy(const std::vector<int>& primaries, const std::string& name) {
  absl::Mutex mu;
  std::set<int> copied;
  MUSTER_RETURN_IF_ERROR(ForEach(std::set<int>(primaries.begin(), primaries.end()), [&](int task) {
    const auto shards = links_->client(task).Cut(name);
    absl::MutexLock lock(&mu);
    if (shards.ok()) copied.insert(shards->begin(), shards->end());
    return shards.status();
  }));
  for (size_t shard = 0; shard < primaries.size(); ++shard)
    if (!copied.contains(static_cast<int>(shard)) && !layout_.chunks[shard].empty())
      return PeerLost(fmt::format("ps {} did not copy shard {}", primaries[shard], shard));
  return absl::OkStatus();
}

void CheckpointCutter::Run() {
  cut_.status = ReadAll();
  const std::string name = checkpoint::CheckpointName(cut_.state.step);
  for (const int task : std::set<int>(cut_.primaries.begin(), cut_.primaries.end()))
    (void)links_->client(task).Drop(name);  // else the next copy takes its place
  {
    absl::MutexLock lock(&mu_);
    now_ = State::kRead;
  }
  on_read_();
}

absl::Status CheckpointCutter::ReadAll() {
  const size_t shards = cut_.primaries.size();
  cut_.contents.resize(shards);
  staged_.assign(has_tables_ && cut_.write ? shards : 0, nullptr);
  cut_.rows.resize(staged_.size());
  std::vector<int> all(shards);
  for (size_t shard = 0; shard < shards; ++shard) all[shard] = static_cast<int>(shard);
  const std::string name = checkpoint::CheckpointName(cut_.state.step);
  const MonotonicTime start = Clock::now();
  MUSTER_RETURN_IF_ERROR(ForEach(all, [&](int shard) { return ReadShard(shard, name); }));
  if (!staged_.empty())
    LogDebug("rows of {} shards were written in {:.3f} s", shards, Seconds(Clock::now() - start));
  MUSTER_RETURN_IF_ERROR(state_->Decode(layout_, cut_.contents));
  MUSTER_RETURN_IF_ERROR(state_->SetIntegers(cut_.integers));
  if (!cut_.put_back.empty()) state_->PutBackWeights(cut_.put_back);
  if (!cut_.write) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(cut_.snapshot, state_->Take(cut_.state));
  cut_.snapshot->replaces = cut_.replaces;
  cut_.snapshot->staged = std::move(staged_);
  return absl::OkStatus();
}

absl::Status CheckpointCutter::ReadShard(int shard, const std::string& name) {
  if (layout_.chunks[shard].empty()) return absl::OkStatus();
  ShardClient& client = links_->client(cut_.primaries[shard]);
  MUSTER_ASSIGN_OR_RETURN(cut_.contents[shard], client.Read(name, shard));
  if (staged_.empty()) return absl::OkStatus();
  auto& file = staged_[shard];
  MUSTER_ASSIGN_OR_RETURN(
      file, sink_->StageFile(checkpoint::TablesFile(shard, static_cast<int>(staged_.size()))));
  MUSTER_RETURN_IF_ERROR(
      client.ReadRows(name, shard, [&](std::string_view bytes) { return file->Append(bytes); }));
  MUSTER_RETURN_IF_ERROR(file->Finish());
  MUSTER_ASSIGN_OR_RETURN(cut_.rows[shard], file->Open());
  return absl::OkStatus();
}

Cut CheckpointCutter::Take() {
  thread_.join();
  Cut cut = std::exchange(cut_, Cut());
  staged_.clear();
  absl::MutexLock lock(&mu_);
  now_ = State::kIdle;
  return cut;
}

}  // namespace muster
