// Counts the examples of one dataset that on_error "skip" drops from batches. The count is over all
// replicas, so that losses divide by the examples that remain. The first few errors are reported by
// name. One object for each replica, used in its thread.
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

// The limit of examples that are named, both in a process's log and over all replicas.
inline constexpr int kMostNamedExamples = 20;

// The damaged examples that a process has logged. Each example is logged once in a run, even if
// several passes read it. At most kMostNamedExamples of each dataset are logged. Thread-safe.
class DamageLog {
 public:
  // Logs the examples in `damaged` that were not logged before. Returns how many it logged.
  int Warn(const std::string& data, const std::vector<std::string>& damaged);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::set<std::string>> said_ ABSL_GUARDED_BY(mutex_);
};

class DamagedExamples {
 public:
  // `data` is the user's name of the data. `communicator` and `log` must outlive this object.
  // Without a communicator the replica loads only for itself. Without a log this object uses its
  // own.
  DamagedExamples(std::string data, Communicator* communicator, c10::Device device,
                  DamageLog* log = nullptr)
      : data_(std::move(data)),
        communicator_(communicator),
        device_(device),
        log_(log == nullptr ? &own_log_ : log) {}

  struct Report {
    int64_t count = 0;               // Over all replicas.
    std::vector<std::string> names;  // Errors of some examples that no earlier report named.
    void Add(const Report& other) {
      count += other.count;
      names.insert(names.end(), other.names.begin(), other.names.end());
    }
  };
  // Called by all replicas, each with the examples it dropped from its part of the same batch.
  absl::StatusOr<Report> Exchange(const std::vector<std::string>& mine);

 private:
  std::vector<std::string> NewOf(const std::vector<std::string>& mine) const;

  const std::string data_;
  Communicator* const communicator_;
  const c10::Device device_;
  DamageLog own_log_;
  DamageLog* const log_;
  std::set<std::string> named_;  // Equal on all replicas.
};

}  // namespace muster
