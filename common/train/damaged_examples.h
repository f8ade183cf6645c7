// Counts the damaged examples that on_error "skip" drops from the batches of one dataset. The count
// covers all replicas, because a loss is divided by the number of remaining examples. Reports give
// the errors of the first few examples. Each replica has one object for each dataset and uses it in
// its own thread.
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

// The maximum number of damaged examples of a dataset that are named: in the log of a process, and
// in the reports.
inline constexpr int kMaxNamedExamples = 20;

// The log of a process's damaged examples. Logs each example once in a run, even if several passes
// read it, and at most kMaxNamedExamples of each dataset. Thread-safe.
class DamageLog {
 public:
  // Logs the examples in `damaged` that were not logged before. Returns how many it logged.
  int Warn(const std::string& data, const std::vector<std::string>& damaged);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::set<std::string>> logged_ ABSL_GUARDED_BY(mutex_);
};

class DamagedExamples {
 public:
  // `data` is the user's name of the dataset. `communicator` and `log` must outlive this object.
  // `communicator` is null if only this replica reads the data. If `log` is null, this object uses
  // a log of its own.
  DamagedExamples(std::string data, collective::Communicator* communicator, c10::Device device,
                  DamageLog* log = nullptr)
      : data_(std::move(data)),
        communicator_(communicator),
        device_(device),
        log_(log == nullptr ? &own_log_ : log) {}

  struct Report {
    int64_t count = 0;               // Damaged examples of all replicas.
    std::vector<std::string> names;  // Errors of examples that no earlier report named.
    void Add(const Report& other) {
      count += other.count;
      names.insert(names.end(), other.names.begin(), other.names.end());
    }
  };
  // Called by all replicas for the same batch. `mine` has the errors of the examples that this
  // replica dropped from its part. Returns the same report on all replicas.
  absl::StatusOr<Report> Exchange(const std::vector<std::string>& mine);

 private:
  std::vector<std::string> NewOf(const std::vector<std::string>& mine) const;

  const std::string data_;
  collective::Communicator* const communicator_;
  const c10::Device device_;
  DamageLog own_log_;
  DamageLog* const log_;
  std::set<std::string> named_;  // Equal on all replicas.
};

}  // namespace muster
