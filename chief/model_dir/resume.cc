#include "chief/model_dir/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/base/logging.h"
#include "common/checkpoint/export_file.h"
#include "common/data/job/job_data.h"
#include "common/job/finished_run.h"
#include "common/job/job_checks.h"
#include "common/job/program_path.h"

namespace muster::chief {
namespace {

using checkpoint::SavedState;

// Returns the value of a dotted key as text, "nothing" if there is none.
std::string ValueOf(const Json& job, const std::string& key) {
  const Json* value = &job;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const auto it = value->is_object() ? value->find(key.substr(begin, end - begin)) : value->end();
    if (it == value->end() || it->is_null()) return "nothing";
    value = &*it;
    begin = end + 1;
  }
  return value->dump();
}

// Returns the first key in which the job differs from the job of the state. The batch size may be
// stated in another way, and the program file may be in another folder.
std::string DifferingKey(const Job& job, const SavedState& state) {
  Json before = state.job, now = JobToJson(job);
  for (Json* json : {&before, &now}) {
    if (json->contains("program")) (*json)["program"] = PortableProgram(json->at("program"));
  }
  if (job.global_batch_size && *job.global_batch_size == state.global_batch_size) {
    for (Json* json : {&before, &now}) {
      json->erase("global_batch_size");
      json->erase("per_replica_batch_size");
    }
  }
  return checkpoint::FirstFixedDifference(before, now);
}

absl::Status CheckSame(const Job& job, const SavedState& state, const std::string& where) {
  const Json now = JobToJson(job);
  const std::string key = DifferingKey(job, state);
  std::optional<data::TrainingDifference> other;
  if (!key.empty()) {
    other = {key, ValueOf(state.job, key), ValueOf(now, key)};
  } else {
    other = data::DifferenceInTraining(state.job, now);
  }
  if (!other) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "{} was trained with another {}: {} there, {} here; training continues only with the same "
      "value: set the old value again, or start a new run with another model_dir or restore: never",
      where, other->key, other->before, other->now));
}

std::string Position(const SavedState& state) {
  if (state.offset == 0 && state.epoch > 0)
    return fmt::format("step {} (the end of epoch {})", state.step, state.epoch);
  return fmt::format("step {} (epoch {}, {} examples into it)", state.step, state.epoch + 1,
                     state.offset);
}

// Returns whether the job trains further than it did when the state was saved.
bool WasExtended(const Job& job, const SavedState& state) {
  const absl::StatusOr<Job> before = JobFromJson(state.job);
  return before.ok() && TrainsFurther(job, *before);
}

// Returns whether this run was completed. The progress of the run is that of the checkpoint, or of
// result.json if the checkpoint is older.
bool Finished(const Job& job, const Json& result, const SavedState* state) {
  const int64_t steps = result.value("steps", int64_t{0});
  if (state != nullptr && state->step >= steps) {
    // The program ended training before the job's own end.
    if ((state->extras.finished || result.value("finished", false)) && !WasExtended(job, *state))
      return true;
    return TrainedToItsEnd(job, state->step, state->epoch);
  }
  // "epochs" in result.json includes the last epoch even if max_steps ended it early.
  int64_t epochs = result.value("epochs", int64_t{0});
  if (state != nullptr) {
    const auto max_steps = state->job.find("max_steps");
    if (max_steps != state->job.end() && max_steps->is_number_integer() && steps >= *max_steps)
      --epochs;
  }
  return TrainedToItsEnd(job, steps, epochs);
}

bool Completed(const ModelDirContent& content) {
  return content.same_run && content.result && content.result->is_object() &&
         content.result->value("status", Json()) == "completed" &&
         content.result->value("steps", Json()).is_number_integer() &&
         content.result->value("epochs", Json()).is_number_integer();
}

StartDecision Fresh(const Job& job, bool completed, bool same_run) {
  if (job.model_dir.empty()) return {StartKind::kFresh, false, false, "nothing to continue from"};
  if (!completed)
    return {StartKind::kFresh, false, false,
            fmt::format("model_dir '{}' holds no checkpoint: training starts from the beginning{}",
                        job.model_dir,
                        same_run ? ", unless a member still holds this run's state" : "")};
  return {StartKind::kFresh, false, false,
          fmt::format("model_dir '{}' holds the result of a finished run, but no checkpoint to "
                      "continue from: training starts from the beginning",
                      job.model_dir)};
}

// Returns whether the job's `restore` is the path of a checkpoint.
bool RestoresPath(const Job& job) { return job.restore != "auto" && job.restore != "never"; }

}  // namespace

absl::StatusOr<StartDecision> DecideStart(const Job& job, const ModelDirContent& content) {
  const bool completed = Completed(content);
  const SavedState* own = content.own.ok() && *content.own ? &**content.own : nullptr;
  const std::string model_dir = fmt::format("model_dir '{}'", job.model_dir);
  if (own != nullptr) MUSTER_RETURN_IF_ERROR(CheckSame(job, *own, model_dir));
  if (completed && Finished(job, *content.result, own)) {
    return StartDecision{
        StartKind::kFinished, true, true,
        fmt::format("the job in {} was trained to its end before: step {}, {} epoch{}; more epochs "
                    "or max_steps continue from there",
                    model_dir, content.result->at("steps").get<int64_t>(),
                    content.result->at("epochs").get<int64_t>(),
                    content.result->at("epochs") == 1 ? "" : "s")};
  }
  MUSTER_RETURN_IF_ERROR(content.own.status());
  if (own != nullptr) {
    return StartDecision{StartKind::kRestore, content.same_run,
                         completed && own->step >= content.result->at("steps").get<int64_t>(),
                         fmt::format("going on after {}, from {}/checkpoints/{}{}", Position(*own),
                                     job.model_dir, checkpoint::CheckpointName(own->step),
                                     RestoresPath(job) ? fmt::format("; restore '{}' is not read: "
                                                                     "model_dir has its own",
                                                                     job.restore)
                                                       : "")};
  }
  if (!RestoresPath(job)) return Fresh(job, completed, content.same_run);
  MUSTER_RETURN_IF_ERROR(content.elsewhere.status());
  if (!*content.elsewhere) {
    return ConfigurationError(
        fmt::format("restore is '{}', where there is no checkpoint", job.restore));
  }
  const SavedState& state = **content.elsewhere;
  MUSTER_RETURN_IF_ERROR(CheckSame(job, state, fmt::format("restore '{}'", job.restore)));
  return StartDecision{StartKind::kCopy, false, false,
                       fmt::format("beginning after {} of run {}, from {}", Position(state),
                                   state.run_id, job.restore)};
}

// ---- Reading

namespace {

using checkpoint::FileSystem;
using checkpoint::Snapshot;

absl::Status MoveAside(FileSystem& files, const std::string& model_dir,
                       const std::string& previous_run_id,
                       const std::function<absl::Status()>& fence) {
  const std::string from = checkpoint::JoinPath(model_dir, "checkpoints");
  MUSTER_ASSIGN_OR_RETURN(const bool there, files.Exists(from));
  if (!there) return absl::OkStatus();
  const std::string wanted =
      from + "-" + (previous_run_id.empty() ? "of-an-unknown-run" : previous_run_id);
  std::string to = wanted;
  for (int again = 2;; ++again) {
    MUSTER_ASSIGN_OR_RETURN(const bool taken, files.Exists(to));
    if (!taken) break;
    to = fmt::format("{}-{}", wanted, again);
  }
  // Another owner may have the checkpoints by now.
  if (fence) MUSTER_RETURN_IF_ERROR(fence());
  MUSTER_RETURN_IF_ERROR(files.Rename(from, to));
  LogInfo("restore is never: the checkpoints of run {} are in {} from now on",
          previous_run_id.empty() ? "(unknown)" : previous_run_id, to);
  return files.SyncDirectory(model_dir);
}

// Reads the output of `muster export --optimizer`.
absl::StatusOr<std::optional<Snapshot>> ReadExported(FileSystem& files, const std::string& path) {
  absl::StatusOr<checkpoint::Export> read = checkpoint::ReadExport(files, path);
  if (absl::IsNotFound(read.status())) return std::optional<Snapshot>();
  if (!read.ok() && !absl::IsDataLoss(read.status()))
    return StartError(read.status(), fmt::format("cannot read {}", path));
  MUSTER_RETURN_IF_ERROR(read.status());
  if (!read->slots) {
    return ConfigurationError(fmt::format(
        "restore is '{}', which has weights and no state of the optimizers: write it with `muster "
        "export --optimizer`, or begin with its weights by \"load\"",
        path));
  }
  return std::optional<Snapshot>(std::move(read->snapshot));
}

absl::StatusOr<std::optional<Snapshot>> ReadSnapshot(FileSystem& files, const Job& job,
                                                     const std::string& path,
                                                     const std::function<bool()>& held) {
  if (checkpoint::NamesExport(path)) return ReadExported(files, path);
  // With parameter servers, slots and rows go from the files to the servers, so they are not read
  // here.
  const auto bytes = job.strategy == StrategyKind::kParameterServer ? checkpoint::Bytes::kLeft
                                                                    : checkpoint::Bytes::kRead;
  std::vector<std::string> damaged;
  auto snapshot = checkpoint::ReadNewest(files, path, &damaged, {bytes, held});
  for (const std::string& sentence : damaged) LogWarning("{}", sentence);
  if (!snapshot.ok() && !absl::IsDataLoss(snapshot.status()))
    return StartError(snapshot.status(), fmt::format("cannot read checkpoints in {}", path));
  return snapshot;
}

absl::StatusOr<std::optional<SavedState>> StateOf(
    const absl::StatusOr<std::optional<Snapshot>>& snapshot) {
  if (!snapshot.ok()) return snapshot.status();
  if (!*snapshot) return std::optional<SavedState>();
  return (*snapshot)->state;
}

std::optional<Json> ReadObject(FileSystem& files, const std::string& model_dir,
                               const std::string& name) {
  const auto text = checkpoint::ReadFile(files, checkpoint::JoinPath(model_dir, name));
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<Json> json = ParseJson(*text, name);
  return json.ok() && json->is_object() ? std::optional<Json>(*json) : std::nullopt;
}

}  // namespace

absl::Status CheckBegunSynchronously(FileSystem& files, const Job& job) {
  const bool continues = !job.model_dir.empty() && job.restore != "never";
  const auto begun = continues ? ReadObject(files, job.model_dir, "job.json") : std::nullopt;
  const Json::json_pointer key("/parameter_server/max_staleness");
  if (begun && begun->contains(key) && begun->at(key) == 0) return absl::OkStatus();
  return CheckMaxStaleness(job);
}

void SetDue(const Job& job, const StartDecision& decision, SavedState* state) {
  state->extras.finished = state->extras.finished && !WasExtended(job, *state);
  const bool ended = TrainedToItsEnd(job, state->step, state->epoch);
  if (decision.passes_done) state->validation_due = false;
  if (decision.passes_done) state->test_due = false;
  if (decision.passes_done || !ended) return;
  const absl::StatusOr<Job> before = JobFromJson(state->job);
  if (before.ok() && !TrainedToItsEnd(*before, state->step, state->epoch))
    state->validation_due = state->test_due = true;
}

absl::Status StartError(const absl::Status& status, const std::string& what) {
  if (status.ok() || absl::IsDataLoss(status) || absl::IsAborted(status)) return status;
  const std::string text = fmt::format("{}: {}", what, Message(status));
  if (absl::IsPermissionDenied(status)) return ConfigurationError(text);
  return absl::UnavailableError(text);
}

namespace {
// `same_run` becomes ModelDirContent::same_run.
absl::StatusOr<PreparedStart> Prepare(checkpoint::FileSystem& files, const Job& job, bool same_run,
                                      const std::function<bool()>& held) {
  ModelDirContent content;
  absl::StatusOr<std::optional<Snapshot>> own = std::optional<Snapshot>(), elsewhere = own;
  if (!job.model_dir.empty() && job.restore != "never") {
    content.same_run = same_run;
    content.result = ReadObject(files, job.model_dir, "result.json");
    own = ReadSnapshot(files, job, checkpoint::JoinPath(job.model_dir, "checkpoints"), held);
  }
  content.own = StateOf(own);
  if (RestoresPath(job) && own.ok() && !*own)
    elsewhere = ReadSnapshot(files, job, job.restore, held);
  content.elsewhere = StateOf(elsewhere);
  PreparedStart prepared;
  MUSTER_ASSIGN_OR_RETURN(prepared.decision, DecideStart(job, content));
  if (prepared.decision.kind == StartKind::kRestore) prepared.snapshot = *std::move(own);
  if (prepared.decision.kind == StartKind::kCopy) prepared.snapshot = *std::move(elsewhere);
  if (prepared.snapshot) SetDue(job, prepared.decision, &prepared.snapshot->state);
  return prepared;
}
}  // namespace

absl::StatusOr<PreparedStart> PrepareStart(checkpoint::FileSystem& files, const Job& job,
                                           const std::string& previous_run_id,
                                           const std::function<absl::Status()>& fence,
                                           const std::function<bool()>& held) {
  if (!job.model_dir.empty()) {
    const std::string directory = checkpoint::JoinPath(job.model_dir, "checkpoints");
    MUSTER_RETURN_IF_ERROR(StartError(checkpoint::RemoveStaging(files, directory, fence),
                                      fmt::format("cannot write to {}", directory)));
    if (job.restore == "never") {
      MUSTER_RETURN_IF_ERROR(StartError(MoveAside(files, job.model_dir, previous_run_id, fence),
                                        fmt::format("cannot move {} aside", directory)));
    }
  }
  return Prepare(files, job, !previous_run_id.empty(), held);
}

absl::StatusOr<StartState> FindStartState(const Job& job) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  bool same_run = false;
  if (!job.model_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(same_run,
                            files.Exists(checkpoint::JoinPath(job.model_dir, "owner.json")));
  }
  MUSTER_ASSIGN_OR_RETURN(PreparedStart content, Prepare(files, job, same_run, nullptr));
  StartState beginning;
  if (content.decision.kind != StartKind::kFresh) beginning.reason = content.decision.reason;
  beginning.finished = content.decision.kind == StartKind::kFinished;
  beginning.snapshot = std::move(content.snapshot);
  return beginning;
}

}  // namespace muster::chief
