#include "common/train/callbacks/callback_host.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"
#include "common/train/replica/replica.h"
#include "common/train/summary_data.h"

namespace muster {
namespace {

constexpr const char* kHookNames[] = {"train_begin", "train_end", "epoch_begin", "epoch_end",
                                      "step_begin",  "step_end",  "pass_begin",  "pass_end"};

void Call(Callback& callback, Hook hook, CallbackContext& context) {
  switch (hook) {
    case Hook::kTrainBegin:
      return callback.train_begin(context);
    case Hook::kTrainEnd:
      return callback.train_end(context);
    case Hook::kEpochBegin:
      return callback.epoch_begin(context);
    case Hook::kEpochEnd:
      return callback.epoch_end(context);
    case Hook::kStepBegin:
      return callback.step_begin(context);
    case Hook::kStepEnd:
      return callback.step_end(context);
    case Hook::kPassBegin:
      return callback.pass_begin(context);
    case Hook::kPassEnd:
      return callback.pass_end(context);
  }
}

}  // namespace

bool IsSettable(const Json& learning_rate) {
  if (learning_rate.is_number()) return true;
  if (!learning_rate.is_object() || learning_rate.value("name", "") != "constant") return false;
  return std::none_of(learning_rate.items().begin(), learning_rate.items().end(),
                      [](const auto& item) { return item.key().starts_with("warmup"); });
}

std::vector<std::string> DropReplacedRates(const std::vector<CallbackHostOptions::Rate>& rates,
                                           checkpoint::CallbackRecord* record) {
  std::vector<std::string> lines;
  for (const CallbackHostOptions::Rate& rate : rates) {
    const auto set = record->rates.find(rate.optimizer);
    const auto of = record->rates_of.find(rate.optimizer);
    if (set == record->rates.end() || of == record->rates_of.end() ||
        of->second == rate.learning_rate)
      continue;
    lines.push_back(
        fmt::format("the learning rate of optimizer \"{}\" is {} now, was {}: the {:.6g} that "
                    "callbacks had set "
                    "counts no longer",
                    rate.optimizer, rate.learning_rate.dump(), of->second.dump(), set->second));
    record->rates.erase(set);
    record->rates_of.erase(of);
  }
  return lines;
}

std::string ToText(const CallbackDecision& decision) {
  Json weights = Json::array();
  for (const auto& [what, whose] : decision.weights) weights.push_back({what, whose});
  return Dump(Json{{"record", ToJson(decision.record)},
                   {"weights", std::move(weights)},
                   {"save", decision.save}});
}

absl::StatusOr<CallbackDecision> DecisionFromText(const std::string& text) {
  CallbackDecision decision;
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "what the chief's callbacks decided"));
  MUSTER_ASSIGN_OR_RETURN(decision.record, checkpoint::CallbackRecordFromJson(json.at("record")));
  for (const Json& one : json.at("weights"))
    decision.weights.emplace_back(one.at(0).get<std::string>(), one.at(1).get<std::string>());
  decision.save = json.at("save").get<bool>();
  return decision;
}

void CallbackHost::Begin(const checkpoint::CallbackRecord& record, bool begun) {
  adopted_ = record;
  for (const NamedCallback& named : options_.callbacks) {
    const auto state = record.states.find(named.name);
    if (state != record.states.end()) {
      ThrowIfError(CatchProgramErrors(fmt::format("callback \"{}\" in set_state", named.name),
                                      [&] { named.callback->set_state(state->second); }));
    } else if (begun) {
      LogInfo(
          "callback \"{}\" starts with an empty state: the state from which training continues has "
          "none for it",
          named.name);
    }
  }
  decision_ = {adopted_, {}, false};
  for (const auto& [name, note] : adopted_.notes)
    for (Observer* observer : options_.observers) observer->OnCallback(name, note);
}

void CallbackHost::Fire(Hook hook, CallbackMoment moment) {
  moment_ = std::move(moment);
  // Hooks may write files, so this process must own model_dir. Hooks of a step write only through
  // save_model, which makes the same check.
  const bool step = hook == Hook::kStepBegin || hook == Hook::kStepEnd;
  if (!step && options_.may_write) ThrowIfError(options_.may_write());
  for (const NamedCallback& named : options_.callbacks) {
    running_ = named.name;
    ThrowIfError(CatchProgramErrors(
        fmt::format("callback \"{}\" in {}", named.name, kHookNames[static_cast<int>(hook)]),
        [&] { Call(*named.callback, hook, *this); }));
  }
}

bool CallbackHost::TakeDecision(CallbackDecision* decision) {
  for (const NamedCallback& named : options_.callbacks) {
    ThrowIfError(CatchProgramErrors(fmt::format("callback \"{}\" in state", named.name), [&] {
      decision_.record.states[named.name] = named.callback->state();
    }));
  }
  const bool changed =
      !(decision_.record == adopted_) || !decision_.weights.empty() || decision_.save;
  if (changed) *decision = decision_;
  decision_.weights.clear();
  decision_.save = false;
  return changed;
}

void CallbackHost::Adopt(const checkpoint::CallbackRecord& record) {
  adopted_ = decision_.record = record;
}

// ---- Functions that hooks call

std::vector<std::string> CallbackHost::optimizers() const {
  std::vector<std::string> names;
  for (const auto& rate : options_.rates) names.push_back(rate.optimizer);
  return names;
}

double CallbackHost::learning_rate(const std::string& optimizer) const {
  if (optimizer.empty() && options_.rates.empty()) return 0;
  const std::string& name = optimizer.empty() ? options_.rates[0].optimizer : optimizer;
  const auto found = std::find_if(options_.rates.begin(), options_.rates.end(),
                                  [&](const auto& rate) { return rate.optimizer == name; });
  if (found == options_.rates.end())
    throw StatusError(
        ProgramError(fmt::format("callback \"{}\": there is no optimizer \"{}\"", running_, name)));
  const auto set = decision_.record.rates.find(name);
  return set != decision_.record.rates.end() ? set->second : options_.rate(name);
}

void CallbackHost::set_learning_rate(double rate, const std::string& optimizer) {
  if (!(rate >= 0))
    throw StatusError(ProgramError(fmt::format(
        "callback \"{}\" sets a learning rate of {}: it must not be below 0", running_, rate)));
  bool found = false;
  for (const auto& one : options_.rates) {
    if (!optimizer.empty() && one.optimizer != optimizer) continue;
    found = true;
    if (!IsSettable(one.learning_rate)) {
      throw StatusError(ConfigurationError(fmt::format(
          "callback \"{}\" sets the learning rate of optimizer \"{}\", which follows the schedule "
          "{}: give a number as its learning_rate, or leave the callback out",
          running_, one.optimizer, one.learning_rate.value("name", Json()).dump())));
    }
    decision_.record.rates[one.optimizer] = rate;
    decision_.record.rates_of[one.optimizer] = one.learning_rate;
  }
  if (!found && !optimizer.empty())
    throw StatusError(ProgramError(
        fmt::format("callback \"{}\": there is no optimizer \"{}\"", running_, optimizer)));
}

void CallbackHost::stop(const std::string& why) {
  if (!decision_.record.stop.empty()) return;
  decision_.record.stop = why.empty() ? running_ : fmt::format("{}: {}", running_, why);
}

void CallbackHost::keep_weights() {
  decision_.weights.emplace_back("keep", running_);
  decision_.record.kept[running_] = moment_.step;
}

void CallbackHost::restore_weights() {
  const auto kept = decision_.record.kept.find(running_);
  if (kept == decision_.record.kept.end())
    throw StatusError(ProgramError(fmt::format(
        "callback \"{}\" restores weights, but has kept none: call keep_weights first", running_)));
  decision_.weights.emplace_back("restore", running_);
  decision_.record.weights_of = kept->second;
}

void CallbackHost::save_model(const std::string& path, bool with_optimizer) {
  if (options_.may_write) ThrowIfError(options_.may_write());
  ThrowIfError(options_.save_model(path, with_optimizer));
}

at::Tensor CallbackHost::predict(const data::Batch& batch,
                                 const std::vector<std::string>& columns) {
  absl::StatusOr<at::Tensor> outputs = options_.predict(batch, columns);
  // The callback made the batch. An error in it is therefore an error of the program.
  if (!outputs.ok())
    throw StatusError(ProgramError(
        fmt::format("callback \"{}\" in predict: {}", running_, Message(outputs.status()))));
  return *std::move(outputs);
}

void CallbackHost::scalar(const std::string& tag, double value) {
  ScalarReport report;
  report.step = moment_.step;
  report.values.emplace_back(tag, value);
  for (Observer* observer : options_.observers)
    observer->OnScalars(SplitName(Split::kTrain), report);
}

void CallbackHost::text(const std::string& tag, const std::string& markdown) {
  for (Observer* observer : options_.observers) observer->OnText(moment_.step, tag, markdown);
}

void CallbackHost::image(const std::string& tag, const at::Tensor& images) {
  SummaryData data;
  data.Image(!options_.observers.empty(), tag, images);
  for (ImageReport report : data.images) {
    report.step = moment_.step;
    for (Observer* observer : options_.observers)
      observer->OnImages(SplitName(Split::kTrain), report);
  }
}

void CallbackHost::record(const std::string& key, Json value) {
  Json& note = decision_.record.notes[running_];
  note[key] = std::move(value);
  for (Observer* observer : options_.observers) observer->OnCallback(running_, note);
}

}  // namespace muster
