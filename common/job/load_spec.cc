#include "common/job/load_spec.h"

#include <fmt/format.h>

#include <regex>

namespace muster {
namespace {

// The maximum length of a name. std::regex recurses for each character, so a long name in a damaged
// or hostile file would overflow the stack.
constexpr size_t kLongestName = 1024;

}  // namespace

absl::Status CheckRename(const LoadSpec& spec) {
  for (const auto& [pattern, replacement] : spec.rename) {
    try {
      const std::regex compiled(pattern);
    } catch (const std::regex_error& error) {
      return ConfigurationError(
          fmt::format("{}: the pattern \"{}\" of rename is no regular "
                      "expression: {}",
                      spec.where, pattern, error.what()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LoadSpec>> ParseLoad(const Json& load) {
  std::vector<LoadSpec> specs;
  if (load.is_null()) return specs;
  if (!load.is_object()) {
    return ConfigurationError(
        fmt::format("load must be an object from models to files, is {}", load.dump()));
  }
  for (const auto& [model, value] : load.items()) {
    LoadSpec& spec = specs.emplace_back();
    spec.model = model;
    spec.where = "load." + model;
    Json rename = Json::object();
    if (value.is_string()) {
      spec.path = value.get<std::string>();
    } else if (value.is_object()) {
      JsonObject object(value, spec.where);
      object.Read("path", &spec.path).Read("strict", &spec.strict).Read("prefix", &spec.prefix);
      object.Read("rename", &rename);
      MUSTER_RETURN_IF_ERROR(object.Finish());
    } else {
      return ConfigurationError(fmt::format("{} must be a path or an object with \"path\", is {}",
                                            spec.where, value.dump()));
    }
    if (spec.path.empty())
      return ConfigurationError(
          fmt::format("{} names no file: set {}.path", spec.where, spec.where));
    if (!rename.is_object())
      return ConfigurationError(
          fmt::format("{}.rename must be an object from patterns to replacements, is {}",
                      spec.where, rename.dump()));
    for (const auto& [pattern, replacement] : rename.items()) {
      if (!replacement.is_string()) {
        return ConfigurationError(
            fmt::format("{}.rename: the replacement of \"{}\" must be a "
                        "string, is {}",
                        spec.where, pattern, replacement.dump()));
      }
      spec.rename[pattern] = replacement.get<std::string>();
    }
    MUSTER_RETURN_IF_ERROR(CheckRename(spec));
  }
  return specs;
}

absl::StatusOr<std::string> NameInModel(const LoadSpec& spec, const std::string& name) {
  if (!name.starts_with(spec.prefix)) return "";
  std::string result = name.substr(spec.prefix.size());
  for (const auto& [pattern, replacement] : spec.rename) {
    if (result.size() > kLongestName)
      return ConfigurationError(fmt::format(
          "{}: {} has a tensor whose name has {} characters, and rename takes names of {} "
          "at the most: leave rename out",
          spec.where, spec.path, result.size(), kLongestName));
    try {
      result = std::regex_replace(result, std::regex(pattern), replacement);
    } catch (const std::regex_error& error) {
      return ConfigurationError(
          fmt::format("{}: the pattern \"{}\" of rename cannot be applied to the name \"{}\": {}; "
                      "write a simpler one",
                      spec.where, pattern, result, error.what()));
    }
  }
  return result;
}

}  // namespace muster
