// Parses --fault.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>
#include <set>

#include "common/base/faults/faults.h"
#include "muster/json.h"

namespace muster {
namespace {

// The delay of each step by `slow` without a value.
constexpr Duration kSlowStep = std::chrono::milliseconds(200);
constexpr char kForm[] = "write it like kill@worker:1:step=30";

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const size_t place = text.find(at);
    parts.emplace_back(text.substr(0, place));
    if (place == std::string_view::npos) return parts;
    text.remove_prefix(place + 1);
  }
}

template <typename Names>
std::vector<std::string> NamesOf(const Names& names) {
  return {std::begin(names), std::end(names)};
}

// Returns the index of `word` in `names`.
template <typename Names>
absl::StatusOr<int> Find(const std::string& word, const char* what, const Names& names) {
  const std::vector<std::string> known = NamesOf(names);
  const auto found = std::find(known.begin(), known.end(), word);
  if (found != known.end()) return static_cast<int>(found - known.begin());
  const std::string nearest = Nearest(word, known);
  if (!nearest.empty())
    return ConfigurationError(
        fmt::format("there is no {} \"{}\", did you mean \"{}\"?", what, word, nearest));
  return ConfigurationError(
      fmt::format("there is no {} \"{}\"; there are {}", what, word, fmt::join(known, ", ")));
}

absl::StatusOr<int64_t> Number(const std::string& text, const char* what, int64_t least) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least)
    return ConfigurationError(
        fmt::format("{} is \"{}\", and must be a whole number from {} on", what, text, least));
  return number;
}

// Parses "200ms", "3s", "2m".
absl::StatusOr<Duration> Time(const std::string& text, const std::string& what) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  static const std::map<std::string, double> kUnits = {{"ms", 1e-3}, {"s", 1}, {"m", 60}};
  const auto found = error == std::errc() ? kUnits.find({unit, end}) : kUnits.end();
  // A time above a day is probably a mistake, and could overflow later.
  if (found == kUnits.end() || !(number * found->second > 0 && number * found->second <= 86400))
    return ConfigurationError(
        fmt::format("{} is \"{}\", and must be a time like 200ms, 3s or 2m", what, text));
  return FromSeconds(number * found->second);
}

// Parses "worker:1", "worker:*" or "*", and removes these parts from `*parts`. The rest are keys.
absl::StatusOr<std::string> Task(std::vector<std::string>* parts) {
  std::string kind = parts->front();
  parts->erase(parts->begin());
  if (kind == "*") return kind;
  if (kind == "master") kind = "chief";
  static constexpr std::string_view kKinds[] = {"chief", "worker", "ps", "evaluator"};
  MUSTER_RETURN_IF_ERROR(Find(kind, "task type", kKinds).status());
  if (parts->empty() || parts->front().find('=') != std::string::npos)
    return ConfigurationError(
        fmt::format("it does not say which {}: write {}:0, or {}:* for all", kind, kind, kind));
  const std::string index = parts->front();
  parts->erase(parts->begin());
  if (index != "*") MUSTER_RETURN_IF_ERROR(Number(index, "the task's index", 0).status());
  return kind + ":" + index;
}

// Parses "5-100" or "100".
absl::Status ReadSteps(const std::string& text, Fault* fault) {
  const std::vector<std::string> ends = Split(text, '-');
  if (ends.size() != 2)
    return ConfigurationError(
        fmt::format("steps is \"{}\", and must be two numbers like 5-100", text));
  MUSTER_ASSIGN_OR_RETURN(fault->step, Number(ends[0], "the first of steps", 1));
  MUSTER_ASSIGN_OR_RETURN(fault->last_step, Number(ends[1], "the last of steps", fault->step));
  return absl::OkStatus();
}

std::vector<std::string> KeysOf(FaultKind kind) {
  if (kind == FaultKind::kRandom) return {"seed", "steps"};
  if (kind == FaultKind::kSlow) return {"step", "phase"};
  std::vector<std::string> keys = {"step", "phase", "nth"};
  if (kind == FaultKind::kStop || kind == FaultKind::kDiskFull) keys.emplace_back("for");
  if (kind == FaultKind::kFreeze) keys.emplace_back("link");
  return keys;
}

absl::Status ReadKey(const std::string& key, const std::string& value, Fault* fault) {
  MUSTER_RETURN_IF_ERROR(
      Find(key, fmt::format("key of {}", kFaultNames[static_cast<int>(fault->kind)]).c_str(),
           KeysOf(fault->kind))
          .status());
  if (key == "step") {
    MUSTER_ASSIGN_OR_RETURN(fault->step, Number(value, "step", 1));
  } else if (key == "nth") {
    MUSTER_ASSIGN_OR_RETURN(const int64_t nth, Number(value, "nth", 1));
    fault->nth = static_cast<int>(std::min<int64_t>(nth, INT32_MAX));
  } else if (key == "phase") {
    MUSTER_ASSIGN_OR_RETURN(const int phase, Find(value, "phase", kPhaseNames));
    fault->phase = static_cast<Phase>(phase);
  } else if (key == "for") {
    MUSTER_ASSIGN_OR_RETURN(fault->duration, Time(value, key));
  } else if (key == "link") {
    MUSTER_ASSIGN_OR_RETURN(const int link, Find(value, "link", kFaultLinkNames));
    fault->link = static_cast<FaultLink>(link);
  } else if (key == "seed") {
    MUSTER_ASSIGN_OR_RETURN(const int64_t seed, Number(value, "seed", 0));
    fault->seed = static_cast<uint64_t>(seed);
  } else {
    MUSTER_RETURN_IF_ERROR(ReadSteps(value, fault));
  }
  return absl::OkStatus();
}

// Parses the text after the kind's "=".
absl::Status ReadValue(const std::optional<std::string>& value, Fault* fault) {
  const std::string name(kFaultNames[static_cast<int>(fault->kind)]);
  switch (fault->kind) {
    case FaultKind::kDelay:
    case FaultKind::kFreeze: {
      if (!value)
        return ConfigurationError(
            fmt::format("it does not say how long: write {}=200ms@...", name));
      MUSTER_ASSIGN_OR_RETURN(fault->duration, Time(*value, name));
      return absl::OkStatus();
    }
    case FaultKind::kSlow: {
      fault->duration = kSlowStep;
      if (!value) return absl::OkStatus();
      MUSTER_ASSIGN_OR_RETURN(fault->duration, Time(*value, name));
      return absl::OkStatus();
    }
    case FaultKind::kDrop: {
      if (!value) return absl::OkStatus();
      MUSTER_ASSIGN_OR_RETURN(const int link, Find(*value, "link", kFaultLinkNames));
      fault->link = static_cast<FaultLink>(link);
      return absl::OkStatus();
    }
    case FaultKind::kRandom: {
      if (!value) return ConfigurationError("it does not say how many: write random=10@...");
      MUSTER_ASSIGN_OR_RETURN(const int64_t count, Number(*value, name.c_str(), 1));
      if (count > 10000)
        return ConfigurationError(fmt::format("random is {}, and must be 10000 at most", count));
      fault->count = static_cast<int>(count);
      return absl::OkStatus();
    }
    default:
      if (value)
        return ConfigurationError(fmt::format("{} takes no value, it has \"{}\"", name, *value));
      return absl::OkStatus();
  }
}

// Checks that the keys fit together.
absl::Status Check(const Fault& fault) {
  if (fault.kind == FaultKind::kRandom) {
    return fault.last_step > 0
               ? absl::OkStatus()
               : ConfigurationError("it does not say of which steps: add :steps=5-100");
  }
  if (fault.step == 0 && !fault.phase && fault.kind != FaultKind::kSlow)
    return ConfigurationError("it does not say when: add :step=30, or :phase=save");
  if (fault.kind == FaultKind::kException) {
    const Phase phase = fault.phase.value_or(Phase::kForward);
    if (phase < Phase::kData || phase > Phase::kEvaluate)
      return ConfigurationError(fmt::format(
          "the program does not run in phase {}: an exception is one of data, forward, reduce, "
          "update or evaluate",
          PhaseName(phase)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Fault> Parse(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos)
    return ConfigurationError(fmt::format("it names no task: {}", kForm));
  std::string name = text.substr(0, at);
  std::optional<std::string> value;
  if (const size_t equals = name.find('='); equals != std::string::npos) {
    value = name.substr(equals + 1);
    name.resize(equals);
  }
  Fault fault;
  MUSTER_ASSIGN_OR_RETURN(const int kind, Find(name, "fault", kFaultNames));
  fault.kind = static_cast<FaultKind>(kind);
  MUSTER_RETURN_IF_ERROR(ReadValue(value, &fault));
  std::vector<std::string> parts = Split(std::string_view(text).substr(at + 1), ':');
  MUSTER_ASSIGN_OR_RETURN(fault.task, Task(&parts));
  std::set<std::string> seen;
  for (const std::string& part : parts) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      return ConfigurationError(fmt::format("\"{}\" is no key=value: {}", part, kForm));
    const std::string key = part.substr(0, equals);
    if (!seen.insert(key).second) return ConfigurationError(fmt::format("{} is there twice", key));
    MUSTER_RETURN_IF_ERROR(ReadKey(key, part.substr(equals + 1), &fault));
  }
  MUSTER_RETURN_IF_ERROR(Check(fault));
  return fault;
}

// Returns whether a random fault for `pattern` may hit `task`. The pattern "*" does not include
// evaluators: the cluster of some tasks lacks them, but all tasks must draw the same faults.
bool MayDraw(const std::string& pattern, const std::string& task) {
  return pattern != "*" || !task.starts_with("evaluator:");
}

bool Fits(const std::string& pattern, const std::string& task) {
  if (pattern == "*" || pattern == task) return true;
  return pattern.ends_with(":*") && task.starts_with(pattern.substr(0, pattern.size() - 1));
}

// Draws random numbers. Does not use the distributions of <random>, which differ between standard
// libraries.
class FaultGenerator {
 public:
  explicit FaultGenerator(uint64_t seed) : engine_(seed) {}
  // Returns a number from `first` to `last`, inclusive.
  int64_t Between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(engine_() % static_cast<uint64_t>(last - first + 1));
  }

 private:
  std::mt19937_64 engine_;
};

// Draws a fault from which the job recovers: a transient one, or the end of a process.
Fault Draw(const Fault& wish, const std::vector<std::string>& tasks, FaultGenerator* generator) {
  static constexpr FaultKind kKinds[] = {FaultKind::kKill, FaultKind::kStop, FaultKind::kDelay,
                                         FaultKind::kDrop, FaultKind::kFreeze};
  static constexpr Phase kPhases[] = {Phase::kForming, Phase::kData,   Phase::kForward,
                                      Phase::kReduce,  Phase::kUpdate, Phase::kEvaluate,
                                      Phase::kSave};
  Fault fault;
  fault.number = wish.number;
  fault.kind = kKinds[generator->Between(0, std::size(kKinds) - 1)];
  fault.task = tasks[generator->Between(0, static_cast<int64_t>(tasks.size()) - 1)];
  fault.step = generator->Between(wish.step, wish.last_step);
  fault.phase = kPhases[generator->Between(0, std::size(kPhases) - 1)];
  if (fault.phase == Phase::kSave) fault.nth = static_cast<int>(generator->Between(1, 6));
  fault.link = static_cast<FaultLink>(generator->Between(0, 2));
  if (fault.kind != FaultKind::kKill)
    fault.duration = std::chrono::milliseconds(generator->Between(50, 1500));
  return fault;
}

}  // namespace

absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts) {
  std::vector<Fault> faults;
  for (const std::string& text : texts) {
    absl::StatusOr<Fault> fault = Parse(text);
    if (!fault.ok()) return Annotate(fault.status(), fmt::format("--fault {}: ", text));
    fault->number = static_cast<int>(faults.size()) + 1;
    faults.push_back(*std::move(fault));
  }
  return faults;
}

absl::StatusOr<std::vector<Fault>> FaultsOf(const std::string& self, std::vector<Fault> faults,
                                            const std::vector<std::string>& tasks) {
  std::vector<Fault> mine;
  for (const Fault& fault : faults) {
    std::vector<std::string> fitting;
    std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(fitting),
                 [&](const std::string& task) { return Fits(fault.task, task); });
    if (fitting.empty())
      return ConfigurationError(
          fmt::format("--fault {} is for {}, which this cluster has not: it has {}", fault.number,
                      fault.task, fmt::join(tasks, ", ")));
    if (fault.kind != FaultKind::kRandom) {
      if (Fits(fault.task, self)) mine.push_back(fault);
      continue;
    }
    std::erase_if(fitting, [&](const std::string& t) { return !MayDraw(fault.task, t); });
    std::sort(fitting.begin(), fitting.end());
    FaultGenerator generator(fault.seed);
    for (int i = 0; i < fault.count; ++i) {
      Fault drawn = Draw(fault, fitting, &generator);
      if (drawn.task == self) mine.push_back(std::move(drawn));
    }
  }
  return mine;
}

std::string Fault::Describe() const {
  std::string text(kFaultNames[static_cast<int>(kind)]);
  if (kind == FaultKind::kDrop || kind == FaultKind::kFreeze)
    text += fmt::format(" {} connections", kFaultLinkNames[static_cast<int>(link)]);
  if (duration > Duration::zero() && kind != FaultKind::kDrop)
    text += fmt::format("{} {:g} s", kind == FaultKind::kSlow ? ", each step by" : " for",
                        Seconds(duration));
  return text;
}

}  // namespace muster
