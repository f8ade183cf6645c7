// result.json: how a run ended, for scripts (docs/model_dir.md lists its fields). And the files
// around it: JSON that appears whole or not at all.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/train/membership.h"

namespace muster {

// Writes `json` beside `path` and renames it there. Errors are ConfigurationErrors that name the
// path.
absl::Status WriteJsonFile(const std::string& path, const Json& json);

// {"host", "cpu", "cores", "memory_bytes"} of this host. Cores are those that this process may use.
Json HardwareOfThisHost();
// {"muster": ...}; whoever links LibTorch adds its own.
Json OwnVersions();

// One number of each step, of which the median over the steady ones is wanted: the first steps,
// which warm caches and allocators up, are left out. Memory is bounded: of a long run every second,
// then every fourth, ... step is kept.
class SteadySeries {
 public:
  void Add(double value);
  double Median() const;  // 0 where there are no steps

 private:
  static constexpr size_t kMost = 1 << 16;
  static constexpr int64_t kWarmUpSteps = 10;
  std::vector<double> values_;
  int64_t seen_ = 0, stride_ = 1;
};

// Gathers what result.json tells. For one thread.
class RunRecord {
 public:
  void OnStart(const StartReport& report);
  void OnStep(const StepReport& report);
  void OnEpoch(const EpochReport& report);

  struct Ending {
    absl::Status verdict;
    int64_t generations = 0;
    double wall_seconds = 0;
    Json hardware = Json::object(), versions = Json::object();
  };
  Json Result(const Ending& ending) const;

 private:
  int world_size_ = 0, num_replicas_ = 0;
  int64_t steps_ = 0, epochs_ = 0, examples_ = 0;
  SteadySeries rate_, compute_, wait_, input_;
  std::map<std::string, std::map<std::string, double>> metrics_;  // by split
};

}  // namespace muster
