#include "common/train/embedding/table_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace muster {
namespace {

using push_pull::EmbeddingTable;

constexpr const char* kAll = "*";

// Applies the options that the job sets: first those for all tables, then those for this table,
// which take precedence.
absl::StatusOr<EmbeddingOptions> WithJob(const std::string& name, EmbeddingOptions options,
                                         const Json& of_job) {
  for (const std::string& key : {std::string(kAll), name}) {
    if (!of_job.is_object() || !of_job.contains(key) || of_job[key].is_null()) continue;
    const std::string place = "embeddings." + key;
    if (!of_job[key].is_object())
      return ConfigurationError(
          fmt::format("{} must be an object such as {{\"max_rows\": 1000000}}, is {}", place,
                      of_job[key].dump()));
    JsonObject reader(of_job[key], place);
    reader.Read("initializer", &options.initializer);
    reader.Read("dtype", &options.dtype);
    reader.Read("max_rows", &options.max_rows);
    reader.Read("max_bytes", &options.max_bytes);
    reader.Read("eviction", &options.eviction);
    reader.Read("admit_after", &options.admit_after);
    MUSTER_RETURN_IF_ERROR(reader.Finish());
  }
  return options;
}

absl::StatusOr<int> IndexOf(const std::string& value, const std::vector<std::string>& names,
                            const std::string& table, const char* key) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  const std::string nearest = Nearest(value, names);
  return ConfigurationError(fmt::format(
      "{} of embedding \"{}\" must be one of {}, is \"{}\"{}", key, table, fmt::join(names, ", "),
      value, nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest)));
}

absl::Status CheckLeast(int64_t value, int64_t least, const std::string& table, const char* key) {
  if (value >= least) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("{} of embedding \"{}\" must be at least {}, is {}", key, table, least, value));
}

absl::Status SetRule(const std::string& name, const Json& optimizer,
                     EmbeddingTable::Options* table) {
  MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec spec, ParseOptimizer(optimizer));
  if (spec.clip.global_clipnorm > 0 || !spec.groups.empty())
    return ConfigurationError(fmt::format(
        "the optimizer of embedding \"{}\" has {}, which tables cannot do: give it an optimizer of "
        "its own, by its name",
        name,
        spec.groups.empty() ? "global_clipnorm, a norm over all gradients"
                            : "groups of parameters"));
  table->rule = spec.rule;
  table->clip = spec.clip;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EmbeddingTable::Options> TableOptions(const std::string& name,
                                                     const EmbeddingOptions& declared,
                                                     const Json& optimizer, const Json& of_job) {
  MUSTER_ASSIGN_OR_RETURN(const EmbeddingOptions options, WithJob(name, declared, of_job));
  EmbeddingTable::Options table;
  table.width = options.width;
  MUSTER_RETURN_IF_ERROR(SetRule(name, optimizer, &table));
  const auto initializer = push_pull::ParseInitializer(options.initializer);
  if (!initializer.ok())
    return Annotate(initializer.status(), fmt::format("embedding \"{}\": ", name));
  table.initializer = *initializer;
  MUSTER_ASSIGN_OR_RETURN(const int type,
                          IndexOf(options.dtype, push_pull::RowTypeNames(), name, "dtype"));
  table.type = static_cast<push_pull::RowType>(type);
  MUSTER_RETURN_IF_ERROR(CheckLeast(options.max_rows, 0, name, "max_rows"));
  MUSTER_RETURN_IF_ERROR(CheckLeast(options.max_bytes, 0, name, "max_bytes"));
  MUSTER_RETURN_IF_ERROR(CheckLeast(options.admit_after, 1, name, "admit_after"));
  MUSTER_ASSIGN_OR_RETURN(const int eviction,
                          IndexOf(options.eviction, push_pull::EvictionNames(), name, "eviction"));
  table.limits = {options.max_rows, options.max_bytes, static_cast<push_pull::Eviction>(eviction),
                  options.admit_after};
  return table;
}

absl::Status CheckTableNames(const Json& of_job, const std::vector<std::string>& tables) {
  if (!of_job.is_object()) return absl::OkStatus();
  for (const auto& item : of_job.items()) {
    if (item.key() == kAll || std::count(tables.begin(), tables.end(), item.key()) > 0) continue;
    const std::string nearest = Nearest(item.key(), tables);
    return ConfigurationError(fmt::format(
        "embeddings.{} names no embedding table of this program{}; \"*\" is all of them",
        item.key(), nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest)));
  }
  return absl::OkStatus();
}

}  // namespace muster
