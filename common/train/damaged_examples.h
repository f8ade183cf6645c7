// The examples that on_error "skip" leaves out of the batches of one data set: how many there are
// over all replicas, so that losses divide by what was there, and what is wrong with the first of
// them. One object for each replica, in its thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/communicator.h"
#include "muster/status.h"

namespace muster {

// How many of them are named, in a process's log, and over all replicas.
inline constexpr int kMostNamedExamples = 20;

// What a process has said in its log of damaged examples: each once in a run, whatever the passes
// over them, and kMostNamedExamples of each data set. Any thread.
class DamageLog {
 public:
  // Returns how many of them are said now.
  int Warn(const std::string& data, const std::vector<std::string>& damaged);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::set<std::string>> said_ ABSL_GUARDED_BY(mutex_);
};

class DamagedExamples {
 public:
  // `data`: what the user knows the data by. `communicator` and `log` outlive this object. Without
  // a communicator: a replica that loads for itself alone; without a log: one of its own.
  DamagedExamples(std::string data, Communicator* communicator, c10::Device device,
                  DamageLog* log = nullptr)
      : data_(std::move(data)),
        communicator_(communicator),
        device_(device),
        log_(log == nullptr ? &own_log_ : log) {}

  struct Report {
    int64_t count = 0;               // of all replicas
    std::vector<std::string> names;  // what is wrong with some that no report named before
    void Add(const Report& other) {
      count += other.count;
      names.insert(names.end(), other.names.begin(), other.names.end());
    }
  };
  // By all replicas, with what each has left out of its part of the same batch.
  absl::StatusOr<Report> Exchange(const std::vector<std::string>& mine);

 private:
  std::vector<std::string> NewOf(const std::vector<std::string>& mine) const;

  const std::string data_;
  Communicator* const communicator_;
  const c10::Device device_;
  DamageLog own_log_;
  DamageLog* const log_;
  std::set<std::string> named_;  // the same on all replicas
};

}  // namespace muster
