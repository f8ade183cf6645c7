#include "deploy/commands/inspection/checkpoint_command.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state/fields.h"
#include "common/checkpoint/store.h"
#include "common/telemetry/progress.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;
using checkpoint::BestMark;
using checkpoint::CheckpointInfo;
using checkpoint::Contents;
using checkpoint::TensorInfo;

struct Inspected {
  CheckpointInfo info;
  bool latest = false;
  std::optional<BestMark> best;
  std::optional<Contents> contents;  // Set if requested and readable.

  bool whole() const { return info.health.ok(); }
};

struct Findings {
  std::string path;
  bool single = false;
  std::vector<Inspected> checkpoints;
};

std::string_view TypeName(const TensorInfo& tensor) {
  return checkpoint::kDTypeNames[static_cast<int>(tensor.dtype)];
}

// Returns WHY of "checkpoint step-... is damaged: WHY", because the table shows the rest.
std::string Damage(const CheckpointInfo& info) {
  const std::string prefix = fmt::format("checkpoint {} is damaged: ", info.name);
  std::string what(Message(info.health));
  return what.starts_with(prefix) ? "damaged: " + what.substr(prefix.size()) : what;
}

absl::StatusOr<Findings> Inspect(const std::string& directory, bool verify, bool tensors) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  const auto place = checkpoint::FindCheckpoints(files, directory);
  if (!place.ok()) return ConfigurationError(Message(place.status()));
  if (!*place) {
    const auto there = files.Exists(directory);
    return ConfigurationError(
        there.ok() && *there
            ? fmt::format(
                  "{} is not a checkpoint and contains none: name a model_dir, its checkpoints "
                  "folder, or one checkpoint",
                  directory)
            : fmt::format("{} is not there", directory));
  }
  Findings findings{(*place)->path, (*place)->single, {}};
  // A single checkpoint may be in any folder and have any name.
  const std::string folder =
      findings.single ? checkpoint::ParentPath(findings.path) : findings.path;
  std::vector<CheckpointInfo> infos;
  if (findings.single) {
    infos.push_back(checkpoint::InspectCheckpoint(files, findings.path, verify));
  } else {
    auto list = checkpoint::ListCheckpoints(files, folder, verify);
    if (!list.ok()) return ConfigurationError(Message(list.status()));
    infos = *std::move(list);
    if (infos.empty()) return ConfigurationError(fmt::format("{} holds no checkpoint", folder));
  }
  const std::optional<int64_t> latest = checkpoint::ReadLatest(files, folder);
  const std::optional<BestMark> best = checkpoint::ReadBest(files, folder);
  for (CheckpointInfo& info : infos) {
    Inspected one{std::move(info)};
    const bool named = checkpoint::StepOfName(one.info.name) >= 0;
    one.latest = named && latest == one.info.step;
    if (named && best && best->step == one.info.step) one.best = best;
    if (tensors || findings.single) {
      auto contents = checkpoint::ReadContents(files, one.info.path);
      if (contents.ok()) one.contents = *std::move(contents);
      // Reading may find damage that the quick check did not.
      if (one.whole()) one.info.health = contents.status();
    }
    findings.checkpoints.push_back(std::move(one));
  }
  return findings;
}

OrderedJson TensorsJson(const std::vector<TensorInfo>& tensors) {
  OrderedJson list = OrderedJson::array();
  for (const TensorInfo& tensor : tensors) {
    list.push_back({{"name", tensor.name},
                    {"dtype", TypeName(tensor)},
                    {"shape", tensor.shape},
                    {"bytes", tensor.bytes()}});
  }
  return list;
}

// Scripts depend on these keys of `muster checkpoint inspect --json`.
OrderedJson ToJson(const Findings& findings) {
  OrderedJson list = OrderedJson::array();
  for (const Inspected& one : findings.checkpoints) {
    OrderedJson json = {{"name", one.info.name},   {"path", one.info.path}, {"step", one.info.step},
                        {"bytes", one.info.bytes}, {"whole", one.whole()},  {"damage", nullptr},
                        {"latest", one.latest},    {"best", nullptr}};
    if (!one.whole()) json["damage"] = Message(one.info.health);
    if (one.best) {
      json["best"] = {{"metric", one.best->metric},
                      {"value", checkpoint::NumberToJson(one.best->value)}};
    }
    if (one.contents) {
      json["state"] = checkpoint::ToJson(one.contents->state);
      json["model"] = TensorsJson(one.contents->model);
      json["optimizer"] = TensorsJson(one.contents->optimizer);
      if (!one.contents->replica_buffers.empty())
        json["replica_buffers"] = TensorsJson(one.contents->replica_buffers);
      for (const auto& [callback, tensors] : one.contents->kept)
        json["weights"][callback] = TensorsJson(tensors);
      for (const auto& [file, tensors] : one.contents->tables)
        json["tables"][file] = TensorsJson(tensors);
    }
    list.push_back(std::move(json));
  }
  return {{"path", findings.path}, {"checkpoints", list}};
}

std::string Marks(const Inspected& one) {
  std::vector<std::string> marks;
  if (one.latest) marks.push_back("latest");
  if (one.best) marks.push_back(fmt::format("best ({} {:.6g})", one.best->metric, one.best->value));
  return fmt::format("{}", fmt::join(marks, ", "));
}

void PrintList(const Findings& findings, bool verified) {
  size_t name = 0, bytes = 5;
  for (const Inspected& one : findings.checkpoints) {
    name = std::max(name, one.info.name.size());
    bytes = std::max(bytes, FormatGrouped(one.info.bytes).size());
  }
  fmt::print("{}\n{:<{}}  {:>{}}  health\n", findings.path, "checkpoint", name, "bytes", bytes);
  for (const Inspected& one : findings.checkpoints) {
    const std::string health = !one.whole() ? Damage(one.info)
                               : verified   ? "whole"
                                            : "whole, by its sizes";
    const std::string marks = Marks(one);
    fmt::print("{:<{}}  {:>{}}  {}{}{}\n", one.info.name, name, FormatGrouped(one.info.bytes),
               bytes, health, marks.empty() ? "" : "; ", marks);
  }
}

void PrintTensors(const std::string& file, const std::vector<TensorInfo>& tensors) {
  size_t name = 0, shape = 0;
  size_t bytes = 0;
  const auto text = [](const TensorInfo& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
  };
  for (const TensorInfo& tensor : tensors) {
    name = std::max(name, tensor.name.size());
    shape = std::max(shape, text(tensor).size());
    bytes += tensor.bytes();
  }
  fmt::print("{}: {} tensor{}, {} bytes\n", file, tensors.size(), tensors.size() == 1 ? "" : "s",
             FormatGrouped(static_cast<int64_t>(bytes)));
  for (const TensorInfo& tensor : tensors) {
    fmt::print("  {:<{}}  {:<4}  {:<{}}  {} bytes\n", tensor.name, name, TypeName(tensor),
               text(tensor), shape, FormatGrouped(static_cast<int64_t>(tensor.bytes())));
  }
}

void PrintContents(const Inspected& one, bool verified) {
  fmt::print("{}: {}, {} bytes{}{}\n", one.info.path,
             !one.whole() ? Damage(one.info)
             : verified   ? "whole"
                          : "whole, by its sizes",
             FormatGrouped(one.info.bytes), Marks(one).empty() ? "" : "; ", Marks(one));
  if (!one.contents) return;
  const checkpoint::SavedState& state = one.contents->state;
  fmt::print("step {}: epoch {} with {} of its examples done, {} in the whole run\n", state.step,
             state.epoch, FormatGrouped(state.offset), FormatGrouped(state.examples));
  if (state.validation_due) fmt::print("validation at this step was not complete\n");
  if (state.test_due) fmt::print("the test at this step was not complete\n");
  fmt::print("run {}, global batch size {}\n", state.run_id, state.global_batch_size);
  for (const char* key : {"program", "program_args", "optimizer", "learning_rate", "seed"}) {
    if (state.job.is_object() && state.job.contains(key) && !state.job.at(key).is_null()) {
      fmt::print("{}: {}\n", key, state.job.at(key).dump());
    }
  }
  for (const auto& [name, version] : state.versions) fmt::print("{} {}\n", name, version);
  PrintTensors("model.safetensors", one.contents->model);
  PrintTensors("optimizer.safetensors", one.contents->optimizer);
  if (!one.contents->replica_buffers.empty())
    PrintTensors("replica_buffers.safetensors", one.contents->replica_buffers);
  for (const auto& [callback, tensors] : one.contents->kept)
    PrintTensors(checkpoint::KeptFile(callback).c_str(), tensors);
}

class CheckpointCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand("checkpoint", "Look at checkpoints");
    app->require_subcommand(1);
    CLI::App* inspect = app->add_subcommand(
        "inspect", "Steps, sizes, tensors and health (exit code 2: none there, 3: damaged)");
    inspect->add_option("DIR", directory_, "A model_dir, its checkpoints folder, or one checkpoint")
        ->required();
    inspect->add_flag("--tensors", tensors_, "Also the state and the tensors of each");
    inspect->add_flag("--json", json_, "Print one JSON object, for scripts");
    inspect->add_flag("--verify,!--no-verify", verify_,
                      "Read every byte and compare checksums (the default), or sizes only");
    return app;
  }

  int Run() override {
    const absl::StatusOr<Findings> findings = Inspect(directory_, verify_, tensors_);
    if (!findings.ok()) return ReportStatus("checkpoint inspect", findings.status());
    if (json_) {
      fmt::print("{}\n", Dump(ToJson(*findings)));
    } else {
      Print(*findings);
    }
    const auto& all = findings->checkpoints;
    const auto damaged =
        std::find_if(all.begin(), all.end(), [](const Inspected& one) { return !one.whole(); });
    if (damaged == all.end()) return 0;
    // A checkpoint without read permission is not known to be damaged.
    const absl::Status& health = damaged->info.health;
    return ReportStatus("checkpoint inspect",
                        absl::IsDataLoss(health) ? health : ConfigurationError(Message(health)));
  }

 private:
  void Print(const Findings& findings) const {
    if (!findings.single) PrintList(findings, verify_);
    if (!findings.single && !tensors_) return;
    for (const Inspected& one : findings.checkpoints) {
      if (!findings.single) fmt::print("\n");
      PrintContents(one, verify_);
    }
  }

  std::string directory_;
  bool tensors_ = false, json_ = false, verify_ = true;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointCommand() { return std::make_unique<CheckpointCommand>(); }

}  // namespace muster
