#include "common/train/callbacks/callbacks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "common/train/replica/replica.h"

namespace muster {
namespace {

absl::Status UnknownCallback(const std::string& place, const std::string& name,
                             const std::vector<RegisteredCallback>& registered) {
  std::vector<std::string> known = BuiltinCallbackNames();
  for (const RegisteredCallback& one : registered) known.push_back(one.name);
  const std::string nearest = Nearest(name, known);
  return ConfigurationError(
      nearest.empty()
          ? fmt::format("{}.name must be one of {}, is \"{}\"", place, fmt::join(known, ", "), name)
          : fmt::format("{}.name is \"{}\", did you mean \"{}\"?", place, name, nearest));
}

// Makes a callback that the job names. A callback of the program takes precedence over a built-in
// one of the same name.
absl::StatusOr<BuiltCallback> MakeListed(const std::string& place, const std::string& name,
                                         const Json& entry,
                                         const std::vector<RegisteredCallback>& registered,
                                         const CallbackFacts& facts) {
  JsonObject keys(entry, place);
  std::string ignored;
  keys.Read("name", &ignored);
  const auto own = std::find_if(registered.begin(), registered.end(),
                                [&](const auto& one) { return one.name == name; });
  if (own != registered.end()) {
    BuiltCallback built{own->callback, {}};
    if (own->make) {
      MUSTER_RETURN_IF_ERROR(CatchProgramErrors(fmt::format("making the callback \"{}\"", name),
                                                [&] { built.callback = own->make(keys); }));
    }
    MUSTER_RETURN_IF_ERROR(keys.Finish());
    if (built.callback == nullptr)
      return ProgramError(fmt::format("the callback \"{}\" is null", name));
    return built;
  }
  const std::vector<std::string>& builtin = BuiltinCallbackNames();
  if (std::find(builtin.begin(), builtin.end(), name) == builtin.end())
    return UnknownCallback(place, name, registered);
  return MakeBuiltinCallback(name, place, keys, facts);
}

// Returns the index of an earlier entry that names the same object of the program, or nullopt.
std::optional<size_t> FirstObject(const Json& listed, size_t index,
                                  const std::vector<RegisteredCallback>& registered) {
  const std::string name = listed[index].value("name", std::string());
  const bool object = std::any_of(registered.begin(), registered.end(),
                                  [&](const auto& one) { return one.name == name && !one.make; });
  for (size_t i = 0; object && i < index; ++i)
    if (listed[i].value("name", "") == name) return i;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<CallbackList> MakeCallbacks(const Json& listed,
                                           const std::vector<RegisteredCallback>& registered,
                                           const CallbackFacts& facts) {
  CallbackList list;
  const auto is_listed = [&](const std::string& name) {
    return std::any_of(listed.begin(), listed.end(),
                       [&](const Json& entry) { return entry.value("name", "") == name; });
  };
  std::set<std::string> names;
  // The second callback with the name "early_stopping" becomes "early_stopping-2".
  const auto add = [&](const std::string& name, std::shared_ptr<Callback> callback) {
    std::string unique = name;
    for (int n = 2; !names.insert(unique).second; ++n) unique = fmt::format("{}-{}", name, n);
    list.decides_in_steps = list.decides_in_steps || callback->decides_in_steps();
    list.callbacks.push_back({unique, std::move(callback)});
    return unique;
  };
  for (const RegisteredCallback& own : registered) {
    if (own.callback == nullptr || is_listed(own.name)) continue;
    add(own.name, own.callback);
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    const std::string place = fmt::format("callbacks[{}]", i),
                      name = listed[i].value("name", std::string());
    // An object has only one state, so the job may name it only once.
    if (const std::optional<size_t> first = FirstObject(listed, i, registered)) {
      return ConfigurationError(fmt::format(
          "{} is \"{}\" once more, as callbacks[{}], but the program has one object of that name: "
          "list it once, or register a function that makes one",
          place, name, *first));
    }
    MUSTER_ASSIGN_OR_RETURN(BuiltCallback built,
                            MakeListed(place, name, listed[i], registered, facts));
    if (built.average && list.average)
      return ConfigurationError(fmt::format("{} is a second ema: keep one of them", place));
    if (built.callback == nullptr) continue;
    const std::string unique = add(name, std::move(built.callback));
    if (!built.average) continue;
    list.average = built.average;
    list.average->name = unique;
  }
  return list;
}

}  // namespace muster
