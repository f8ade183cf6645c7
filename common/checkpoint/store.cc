#include "common/checkpoint/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/checkpoint/files/checksummed_file.h"
#include "common/checkpoint/files/staged_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/state/fields.h"

namespace muster::checkpoint {
namespace {

constexpr char kStaging[] = ".staging";
constexpr char kGone[] = ".gone";  // The suffix of an earlier owner's staging folder in removal.
constexpr char kDeleted[] = "deleted-";
constexpr char kStagedFiles[] = "files";  // The folder for files of StageFile.
constexpr char kLatest[] = "latest";
constexpr char kBest[] = "best";

absl::Status IgnoreNotFound(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<Manifest::File> Finished(ChecksummedFile& file) {
  MUSTER_RETURN_IF_ERROR(file.Finish());
  return Manifest::File{file.size(), file.crc()};
}

absl::Status WriteText(FileSystem& files, const std::string& path, const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.Create(path));
  ChecksummedFile out(std::move(file));
  MUSTER_RETURN_IF_ERROR(out.Append(text));
  return out.Finish();
}

// Writes all files of a checkpoint and blocks until they are on the disk. REQUIRES: the directory
// exists.
absl::Status WriteFiles(FileSystem& files, const std::string& path, const Snapshot& snapshot) {
  const std::string state = Dump(ToJson(snapshot.state), 2) + "\n";
  Manifest manifest;
  manifest.step = snapshot.state.step;
  // Syncs only after all files are written, so the disk works while later files are prepared.
  std::map<std::string, ChecksummedFile> written;
  std::map<std::string, const TensorSet*> sets = {{kModelFile, &snapshot.model},
                                                  {kOptimizerFile, &snapshot.optimizer}};
  if (!snapshot.replica_buffers.tensors.empty())
    sets[kReplicaBuffersFile] = &snapshot.replica_buffers;
  for (const auto& [callback, set] : snapshot.kept) sets[KeptFile(callback)] = &set;
  for (const auto& staged : snapshot.staged) sets.erase(staged->name());
  sets[kStateFile] = nullptr;
  for (const auto& [name, set] : sets) {
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.Create(JoinPath(path, name)));
    ChecksummedFile& out = written.try_emplace(name, std::move(file)).first->second;
    MUSTER_RETURN_IF_ERROR(set != nullptr ? WriteSafetensors(*set, out) : out.Append(state));
  }
  for (auto& [name, file] : written) {
    MUSTER_ASSIGN_OR_RETURN(manifest.files[name], Finished(file));
  }
  for (const auto& staged : snapshot.staged)
    MUSTER_RETURN_IF_ERROR(static_cast<FileInStaging&>(*staged).MoveTo(path, &manifest));
  MUSTER_RETURN_IF_ERROR(WriteText(files, JoinPath(path, kManifestFile), ManifestText(manifest)));
  return files.SyncDirectory(path);
}

class StoreImpl : public Store {
 public:
  StoreImpl(FileSystem& files, StoreOptions options)
      : files_(files),
        options_(std::move(options)),
        staging_(JoinPath(JoinPath(options_.directory, kStaging), options_.token)) {}

  ~StoreImpl() override {
    if (staged_) (void)files_.Remove(staging_);
  }

  absl::Status Start(int64_t restored_step) {
    MUSTER_RETURN_IF_ERROR(MakeDirectories(files_, options_.directory));
    MUSTER_RETURN_IF_ERROR(files_.MakeDirectory(ParentPath(staging_)));
    MUSTER_RETURN_IF_ERROR(RemoveStaging(files_, options_.directory, options_.fence));
    MUSTER_RETURN_IF_ERROR(files_.MakeDirectory(staging_));
    staged_ = true;
    // An owner that takes over after this point removes the folder. Without the folder, nothing
    // below works.
    MUSTER_RETURN_IF_ERROR(Fence());
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(options_.directory));
    MUSTER_RETURN_IF_ERROR(ScanCheckpoints(restored_step));
    MUSTER_RETURN_IF_ERROR(RepairLatest());
    return RepairBest();
  }

  absl::StatusOr<std::string> Write(const Snapshot& snapshot) override {
    const int64_t step = snapshot.state.step;
    const std::string name = CheckpointName(step);
    if (Holds(step) && !snapshot.replaces) {
      // An earlier Write may have failed after the rename.
      MUSTER_RETURN_IF_ERROR(
          Explained(RepairLatest(), fmt::format("could not mark {} as the latest", name)));
      return PathOf(step);
    }
    RemoveLeftovers();
    absl::Status status = Stage(snapshot, name);
    if (status.ok() && snapshot.replaces) status = UnmarkReplaced(snapshot.state);
    if (status.ok()) status = Publish(step, name);
    if (!status.ok()) {
      status = Explained(
          status, Holds(step)
                      ? fmt::format("checkpoint {} is there, but could not be made to last", name)
                      : fmt::format("could not save checkpoint {}", name));
      RemoveLeftovers();
      return status;
    }
    if (snapshot.replaces) RemoveLeftovers();
    Prune();
    return PathOf(step);
  }

  absl::StatusOr<std::shared_ptr<StagedFile>> StageFile(const std::string& name) override {
    const auto begin = [&]() -> absl::StatusOr<std::shared_ptr<StagedFile>> {
      MUSTER_RETURN_IF_ERROR(files_.MakeDirectory(Staged(kStagedFiles)));
      const std::string path =
          JoinPath(Staged(kStagedFiles), fmt::format("{}-{}", ++staged_files_, name));
      MUSTER_ASSIGN_OR_RETURN(auto file, files_.Create(path));
      return std::make_shared<FileInStaging>(files_, name, path, std::move(file));
    };
    auto staged = begin();
    if (!staged.ok()) return Explained(staged.status(), fmt::format("could not write {}", name));
    return staged;
  }

  bool IsBetter(int64_t step, const std::string& metric, double value,
                bool larger_is_better) const override {
    const absl::MutexLock lock(&mutex_);
    return IsBetterLocked({step, metric, value}, larger_is_better);
  }

  absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                bool larger_is_better) override {
    const absl::MutexLock marking(&marking_);
    BestMark mark{step, metric, value};
    {
      const absl::MutexLock lock(&mutex_);
      if (!steps_.contains(step) || !IsBetterLocked(mark, larger_is_better)) return false;
      ++pins_[step];  // Pins the checkpoint until it is marked.
    }
    const absl::Status status = WriteBest(mark);
    {
      const absl::MutexLock lock(&mutex_);
      if (status.ok()) best_ = mark;
    }
    // Deletes the previous best if it is not among the newest `keep`.
    Unpin(step);
    if (!status.ok()) {
      return Explained(
          status, fmt::format("could not mark checkpoint {} as the best", CheckpointName(step)));
    }
    return true;
  }

  bool Pin(int64_t step) override {
    const absl::MutexLock lock(&mutex_);
    if (!steps_.contains(step)) return false;
    ++pins_[step];
    return true;
  }

  void Unpin(int64_t step) override {
    {
      const absl::MutexLock lock(&mutex_);
      const auto it = pins_.find(step);
      if (it == pins_.end() || --it->second > 0) return;
      pins_.erase(it);
    }
    Prune();
  }

  std::vector<int64_t> steps() const override {
    const absl::MutexLock lock(&mutex_);
    return {steps_.begin(), steps_.end()};
  }

 private:
  std::string PathOf(int64_t step) const {
    return JoinPath(options_.directory, CheckpointName(step));
  }
  std::string Staged(const std::string& name) const { return JoinPath(staging_, name); }

  bool Holds(int64_t step) const {
    const absl::MutexLock lock(&mutex_);
    return steps_.contains(step);
  }

  absl::Status Fence() { return options_.fence ? options_.fence() : absl::OkStatus(); }

  // Adds `what` to the error. If a new owner has removed the staging folder, the result is
  // Superseded.
  absl::Status Explained(const absl::Status& status, std::string_view what) {
    if (status.ok()) return status;
    const absl::StatusOr<bool> there = files_.Exists(staging_);
    if (absl::IsNotFound(status) && there.ok() && !*there) {
      return Superseded(
          fmt::format("{}: another process has taken {} over", what, options_.directory));
    }
    return Annotate(status, fmt::format("{}: ", what));
  }

  // Moves `name` from the staging folder to `to`, and blocks until the move is on the disk.
  absl::Status Commit(const std::string& name, const std::string& to) {
    MUSTER_RETURN_IF_ERROR(Fence());
    MUSTER_RETURN_IF_ERROR(files_.Rename(Staged(name), JoinPath(options_.directory, to)));
    return files_.SyncDirectory(options_.directory);
  }

  absl::Status Stage(const Snapshot& snapshot, const std::string& name) {
    MUSTER_RETURN_IF_ERROR(files_.MakeDirectory(Staged(name)));
    MUSTER_RETURN_IF_ERROR(WriteFiles(files_, Staged(name), snapshot));
    // `latest` is written before the checkpoint is published. If the disk is full, neither appears.
    return StageLatest(snapshot.state.step);
  }

  absl::Status StageLatest(int64_t step) {
    {
      const absl::MutexLock lock(&mutex_);
      if (!steps_.empty()) step = std::max(step, *steps_.rbegin());
    }
    return WriteText(files_, Staged(kLatest), CheckpointName(step) + "\n");
  }

  absl::Status Publish(int64_t step, const std::string& name) {
    MUSTER_RETURN_IF_ERROR(Fence());
    MUSTER_RETURN_IF_ERROR(Holds(step) ? Replace(step, name)
                                       : files_.Rename(Staged(name), PathOf(step)));
    {
      const absl::MutexLock lock(&mutex_);
      steps_.insert(step);
    }
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(options_.directory));
    return Commit(kLatest, kLatest);
  }

  // Moves the existing checkpoint away first. If the process dies in between, the run resumes from
  // the previous checkpoint.
  absl::Status Replace(int64_t step, const std::string& name) {
    const std::string old = Staged(kDeleted + name);
    MUSTER_RETURN_IF_ERROR(files_.Rename(PathOf(step), old));
    absl::Status status = files_.Rename(Staged(name), PathOf(step));
    if (status.ok() || files_.Rename(old, PathOf(step)).ok()) return status;
    const absl::MutexLock lock(&mutex_);
    steps_.erase(step);
    return status;
  }

  // Removes `best` if it names the replaced checkpoint, because its value is that of other weights.
  absl::Status UnmarkReplaced(const TrainingState& state) {
    const std::optional<CallbackRecord>& record = state.extras.callbacks;
    if (!record || record->weights_of == 0 || record->weights_of == state.step)
      return absl::OkStatus();
    const absl::MutexLock marking(&marking_);
    {
      const absl::MutexLock lock(&mutex_);
      if (!best_ || best_->step != state.step) return absl::OkStatus();
    }
    MUSTER_RETURN_IF_ERROR(RemoveMark(kBest));
    const absl::MutexLock lock(&mutex_);
    best_.reset();
    return absl::OkStatus();
  }

  // Makes `latest` name the newest checkpoint.
  absl::Status RepairLatest() {
    const std::vector<int64_t> held = steps();
    const std::optional<int64_t> says = ReadLatest(files_, options_.directory);
    if (held.empty()) return RemoveMark(kLatest);
    if (says == held.back()) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(StageLatest(held.back()));
    return Commit(kLatest, kLatest);
  }

  absl::Status RepairBest() {
    const std::optional<BestMark> best = ReadBest(files_, options_.directory);
    if (!best || !Holds(best->step)) return RemoveMark(kBest);
    const absl::MutexLock lock(&mutex_);
    best_ = best;
    return absl::OkStatus();
  }

  absl::Status RemoveMark(const std::string& name) {
    MUSTER_ASSIGN_OR_RETURN(const bool there, files_.Exists(JoinPath(options_.directory, name)));
    if (!there) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(Fence());
    MUSTER_RETURN_IF_ERROR(files_.Rename(JoinPath(options_.directory, name), Staged(name)));
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(options_.directory));
    return files_.Remove(Staged(name));
  }

  // Lists the checkpoints and moves aside those that cannot be restored.
  absl::Status ScanCheckpoints(int64_t restored_step) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> infos,
                            ListCheckpoints(files_, options_.directory, /*verify=*/false));
    bool moved = false;
    for (const CheckpointInfo& info : infos) {
      if (info.step > restored_step || absl::IsDataLoss(info.health)) {
        MUSTER_RETURN_IF_ERROR(MoveAside(info));
        moved = true;
        continue;
      }
      const absl::MutexLock lock(&mutex_);
      steps_.insert(info.step);
    }
    return moved ? files_.SyncDirectory(options_.directory) : absl::OkStatus();
  }

  absl::Status MoveAside(const CheckpointInfo& info) {
    std::string aside = fmt::format("damaged-{}", info.name);
    for (int again = 2;; ++again) {
      const std::string path = JoinPath(options_.directory, aside);
      MUSTER_ASSIGN_OR_RETURN(const bool taken, files_.Exists(path));
      if (!taken) break;
      aside = fmt::format("damaged-{}-{}", info.name, again);
    }
    // Moves it to the staging folder first. A superseded owner has none, so the move fails.
    MUSTER_RETURN_IF_ERROR(files_.Rename(info.path, Staged(aside)));
    MUSTER_RETURN_IF_ERROR(files_.Rename(Staged(aside), JoinPath(options_.directory, aside)));
    LogWarning("renamed checkpoint {} to {}", info.name, aside);
    return absl::OkStatus();
  }

  bool IsBetterLocked(const BestMark& mark, bool larger_is_better) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::isnan(mark.value)) return false;
    if (!best_ || best_->step == mark.step || best_->metric != mark.metric) return true;
    if (!steps_.contains(best_->step) || std::isnan(best_->value)) return true;
    return larger_is_better ? mark.value > best_->value : mark.value < best_->value;
  }

  absl::Status WriteBest(const BestMark& mark) {
    const Json json = {{"metric", mark.metric}, {"value", NumberToJson(mark.value)}};
    const std::string text = fmt::format("{}\n{}\n", CheckpointName(mark.step), Dump(json));
    MUSTER_RETURN_IF_ERROR(WriteText(files_, Staged(kBest), text));
    return Commit(kBest, kBest);
  }

  // Removes the checkpoints that are to be deleted from the list and returns them, the oldest
  // first.
  std::vector<int64_t> TakeExpired() {
    const absl::MutexLock lock(&mutex_);
    std::vector<int64_t> expired;
    const size_t keep = std::max(1, options_.keep);
    const size_t old = steps_.size() > keep ? steps_.size() - keep : 0;
    const auto end = std::next(steps_.begin(), static_cast<std::ptrdiff_t>(old));
    std::copy_if(steps_.begin(), end, std::back_inserter(expired), [this](int64_t step) {
      mutex_.AssertHeld();
      return !pins_.contains(step) && !(best_ && best_->step == step);
    });
    for (const int64_t step : expired) steps_.erase(step);
    return expired;
  }

  // Deletes the oldest checkpoints. Each one is renamed, and the rename is on the disk before any
  // of its files is removed. An incomplete checkpoint is therefore never visible. Ignores errors.
  void Prune() {
    const absl::MutexLock pruning(&pruning_);
    const std::vector<int64_t> expired = TakeExpired();
    absl::Status status;
    size_t moved = 0;
    for (; moved < expired.size() && status.ok(); ++moved) {
      status = Fence();
      if (status.ok()) {
        status = files_.Rename(PathOf(expired[moved]),
                               Staged(kDeleted + CheckpointName(expired[moved])));
      }
      if (!status.ok()) break;
    }
    if (moved > 0 && status.ok()) status = files_.SyncDirectory(options_.directory);
    if (!status.ok()) {
      const absl::MutexLock lock(&mutex_);
      steps_.insert(expired.begin() + static_cast<std::ptrdiff_t>(moved), expired.end());
    }
    for (size_t i = 0; i < moved && status.ok(); ++i) {
      status = IgnoreNotFound(files_.Remove(Staged(kDeleted + CheckpointName(expired[i]))));
    }
    if (!status.ok()) {
      LogWarning("{}", Message(Explained(status, "could not delete an old checkpoint")));
    }
  }

  // Removes what a failed Write or deletion has left in the staging folder.
  void RemoveLeftovers() {
    const absl::MutexLock pruning(&pruning_);
    const absl::StatusOr<std::vector<std::string>> names = files_.List(staging_);
    if (!names.ok()) return;
    // Syncs the renames first, because Prune may have failed before its sync.
    if (names->empty()) return;
    const bool synced = files_.SyncDirectory(options_.directory).ok();
    for (const std::string& name : *names) {
      const bool removable =
          name.starts_with(kDeleted) ? synced : name != kBest && name != kStagedFiles;
      if (removable) (void)files_.Remove(Staged(name));
    }
  }

  FileSystem& files_;
  const StoreOptions options_;
  const std::string staging_;
  bool staged_ = false;
  // The number of staged files, from which they get unique names.
  std::atomic<int64_t> staged_files_ = 0;

  absl::Mutex marking_;  // Serializes MarkBest.
  absl::Mutex pruning_;  // Serializes deletions.
  mutable absl::Mutex mutex_;
  std::set<int64_t> steps_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int> pins_ ABSL_GUARDED_BY(mutex_);  // The number of pins of each step.
  std::optional<BestMark> best_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RemoveStaging(FileSystem& files, const std::string& directory,
                           const std::function<absl::Status()>& fence) {
  const std::string staging = JoinPath(directory, kStaging);
  const absl::StatusOr<std::vector<std::string>> names = files.List(staging);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  // Called after the folders were listed. The list thus has no folder of a later owner, even if
  // this process sleeps here for a long time.
  if (fence) MUSTER_RETURN_IF_ERROR(fence());
  // Renames each folder first, so its owner finds either the whole folder or none.
  std::vector<std::string> gone;
  for (const std::string& name : *names) {
    if (name.ends_with(kGone)) {
      MUSTER_RETURN_IF_ERROR(IgnoreNotFound(files.Remove(JoinPath(staging, name))));
    }
  }
  for (const std::string& name : *names) {
    if (name.ends_with(kGone)) continue;
    gone.push_back(JoinPath(staging, name + kGone));
    MUSTER_RETURN_IF_ERROR(IgnoreNotFound(files.Rename(JoinPath(staging, name), gone.back())));
  }
  for (const std::string& path : gone) MUSTER_RETURN_IF_ERROR(IgnoreNotFound(files.Remove(path)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(FileSystem& files, StoreOptions options,
                                                   int64_t restored_step) {
  const std::string& token = options.token;
  if (token.empty() || !std::all_of(token.begin(), token.end(),
                                    [](unsigned char c) { return std::isalnum(c) != 0; })) {
    return absl::InvalidArgumentError(
        fmt::format("an owner's token must be letters and digits, is \"{}\"", token));
  }
  const std::string directory = options.directory;
  auto store = std::make_unique<StoreImpl>(files, std::move(options));
  if (const absl::Status status = store->Start(restored_step); !status.ok()) {
    return Annotate(status, fmt::format("cannot save checkpoints in {}: ", directory));
  }
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace muster::checkpoint
