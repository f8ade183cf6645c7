#include "chief/parameter_server/checkpoint_cutter.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/base/fan_out.h"
#include "common/base/logging.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"

namespace muster::chief {
namespace {

// Calls `call` for each distinct task, on one thread per task, because the calls block.
template <typename Call>
absl::Status OfEach(const std::vector<int>& primaries, const Call& call) {
  const std::set<int> distinct(primaries.begin(), primaries.end());
  const std::vector<int> tasks(distinct.begin(), distinct.end());
  return FanOut(tasks.size(), tasks.size(), [&](size_t i) { return call(tasks[i]); });
}

}  // namespace

CheckpointCutter::CheckpointCutter(const push_pull::Layout& layout, ShardState* state,
                                   ServerLinks* links, CheckpointSink* sink,
                                   std::function<void()> on_read)
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
  std::vector<int> answered;
  const absl::Status all = OfEach(primaries, [&](int task) {
    const auto shards = links_->client(task).Cut(name);
    absl::MutexLock lock(&mu);
    if (!shards.ok()) return shards.status();
    copied.insert(shards->begin(), shards->end());
    answered.push_back(task);
    return absl::OkStatus();
  });
  if (!all.ok()) {
    Drop(answered, name);
    return all;
  }
  for (size_t shard = 0; shard < primaries.size(); ++shard)
    if (!copied.contains(static_cast<int>(shard)) && !layout_.chunks[shard].empty())
      return PeerLost(fmt::format("ps {} did not copy shard {}", primaries[shard], shard));
  return absl::OkStatus();
}

// Makes the servers drop the copy. Until then they must copy everything that changes.
void CheckpointCutter::Drop(const std::vector<int>& primaries, const std::string& name) {
  (void)OfEach(primaries, [&](int task) { return links_->client(task).Drop(name); });
}

void CheckpointCutter::Run() {
  cut_.status = ReadAll();
  const std::string name = checkpoint::CheckpointName(cut_.state.step);
  Drop(cut_.primaries, name);
  {
    absl::MutexLock lock(&mu_);
    now_ = State::kRead;
  }
  on_read_();
}

absl::Status CheckpointCutter::ReadAll() {
  const size_t shards = cut_.primaries.size();
  const std::string name = checkpoint::CheckpointName(cut_.state.step);
  const MonotonicTime start = Clock::now();
  // Clears the slots of the previous cut. Slots are also read for callbacks, which may save them.
  state_->SetSlots({});
  std::unique_ptr<SlotsFile> slots;
  if ((cut_.write || cut_.for_callbacks) && sink_ != nullptr && !state_->slots().empty()) {
    auto staged = StageSlots();
    cut_.unwritten = staged.status();
    if (staged.ok()) slots = *std::move(staged);
  }
  staged_.assign(has_tables_ && cut_.write ? shards : 0, nullptr);
  cut_.files.rows.resize(staged_.size());
  MUSTER_RETURN_IF_ERROR(FanOut(shards, shards, [&](size_t shard) {
    return ReadShard(static_cast<int>(shard), name, slots.get());
  }));
  MUSTER_RETURN_IF_ERROR(state_->SetIntegers(cut_.integers));
  if (slots != nullptr) cut_.unwritten.Update(FinishSlots(slots.get()));
  if (!cut_.put_back.empty()) state_->PutBackWeights(cut_.put_back);
  if (!cut_.write || !cut_.unwritten.ok()) return absl::OkStatus();
  cut_.unwritten = WriteSets();
  const double seconds = Seconds(Clock::now() - start);
  if (cut_.snapshot) cut_.snapshot->staged_seconds = seconds;
  LogDebug("{} shards were read and written in {:.3f} s", shards, seconds);
  return absl::OkStatus();
}

void CheckpointCutter::Unwritten(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  cut_.unwritten.Update(status);
}

absl::StatusOr<std::unique_ptr<SlotsFile>> CheckpointCutter::StageSlots() {
  MUSTER_ASSIGN_OR_RETURN(auto file, sink_->StageFile(checkpoint::kOptimizerFile));
  return SlotsFile::Make(state_->slots(), std::move(file));
}

absl::Status CheckpointCutter::FinishSlots(SlotsFile* slots) {
  MUSTER_ASSIGN_OR_RETURN(auto file, slots->Complete());
  if (cut_.write) MUSTER_RETURN_IF_ERROR(file->Finish());
  MUSTER_ASSIGN_OR_RETURN(auto open, file->Open());
  cut_.files.optimizer = checkpoint::TensorsOf(std::move(open));
  state_->SetSlots(cut_.files.optimizer);
  if (cut_.write) staged_.push_back(std::move(file));
  return absl::OkStatus();
}

// Writes the replica's tensors into their files.
absl::Status CheckpointCutter::WriteSets() {
  MUSTER_ASSIGN_OR_RETURN(checkpoint::Snapshot snapshot, state_->Take(cut_.state));
  std::map<std::string, checkpoint::TensorSet> sets;
  for (auto& [callback, set] : std::exchange(snapshot.kept, {}))
    sets[checkpoint::KeptFile(callback)] = std::move(set);
  sets[checkpoint::kModelFile] = std::exchange(snapshot.model, {});
  for (const auto& [name, set] : sets) {
    auto& file = staged_.emplace_back();
    MUSTER_ASSIGN_OR_RETURN(file, sink_->StageFile(name));
    MUSTER_RETURN_IF_ERROR(checkpoint::WriteSafetensors(
        set, [&file = *file](std::string_view bytes) { return file.Append(bytes); }));
    MUSTER_RETURN_IF_ERROR(file->Finish());
    if (name != checkpoint::kModelFile) continue;
    MUSTER_ASSIGN_OR_RETURN(auto open, file->Open());
    cut_.files.model = checkpoint::TensorsOf(std::move(open));
  }
  snapshot.replaces = cut_.replaces;
  snapshot.staged = std::move(staged_);
  cut_.snapshot = std::move(snapshot);
  return absl::OkStatus();
}

absl::Status CheckpointCutter::ReadShard(int shard, const std::string& name, SlotsFile* slots) {
  const std::vector<push_pull::Chunk>& chunks = layout_.chunks[shard];
  if (chunks.empty()) return absl::OkStatus();
  int64_t left = std::count_if(chunks.begin(), chunks.end(),
                               [](const push_pull::Chunk& c) { return !c.rows(); });
  MUSTER_RETURN_IF_ERROR(links_->client(cut_.primaries[shard])
                             .Read(name, shard, [&](const proto::ChunkContent& content) {
                               --left;
                               return state_->Decode(layout_, content, slots);
                             }));
  if (left != 0)
    return DataError(
        fmt::format("of shard {} of \"{}\" {} chunks did not come", shard, name, left));
  return has_tables_ && cut_.write ? ReadRows(shard, name) : absl::OkStatus();
}

absl::Status CheckpointCutter::ReadRows(int shard, const std::string& name) {
  const int shards = static_cast<int>(cut_.primaries.size());
  auto staged = sink_->StageFile(checkpoint::TablesFile(shard, shards));
  absl::Status written = staged.status();
  if (staged.ok()) {
    staged_[shard] = *std::move(staged);
    const absl::Status read =
        links_->client(cut_.primaries[shard]).ReadRows(name, shard, [&](std::string_view bytes) {
          return written = staged_[shard]->Append(bytes);
        });
    if (written.ok()) MUSTER_RETURN_IF_ERROR(read);
    if (written.ok()) written = FinishRows(shard);
  }
  Unwritten(written);
  return absl::OkStatus();
}

absl::Status CheckpointCutter::FinishRows(int shard) {
  MUSTER_RETURN_IF_ERROR(staged_[shard]->Finish());
  MUSTER_ASSIGN_OR_RETURN(cut_.files.rows[shard], staged_[shard]->Open());
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

}  // namespace muster::chief
