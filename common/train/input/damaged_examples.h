// Counts the damaged examples that a job leaves out of its batches. A damaged example is an example
// that cannot be read. A job leaves such examples out if its data option on_error is "skip". Each
// replica (one device's copy of the model, with its own thread) has one DamagedExamples for each
// dataset.
//
// The replicas count the damaged examples of a batch together, because a loss is divided by the
// number of remaining examples.
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

// The maximum number of damaged examples that are named for one dataset. The limit applies to the
// log of each process, and to all reports of one DamagedExamples together.
inline constexpr int kMaxNamedExamples = 20;

// Logs the damaged examples of one process. Each example is logged once in a run, although every
// epoch reads it. At most kMaxNamedExamples of each dataset are logged. Thread-safe.
class DamageLog {
 public:
  // Logs the errors in `damaged` that this object has not logged yet. `data` is the name of the
  // dataset. Returns the number of logged errors.
  int Warn(const std::string& data, const std::vector<std::string>& damaged);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::set<std::string>> logged_ ABSL_GUARDED_BY(mutex_);
};

class DamagedExamples {
 public:
  // `data` is the user's name of the dataset. `communicator` and `log` must outlive this object.
  // `communicator` may be null. Reports then cover only this replica. If `log` is null, this object
  // uses a log of its own.
  DamagedExamples(std::string data, collective::Communicator* communicator, c10::Device device,
                  DamageLog* log = nullptr)
      : data_(std::move(data)),
        communicator_(communicator),
        device_(device),
        log_(log == nullptr ? &own_log_ : log) {}

  struct Report {
    int64_t count = 0;  // Damaged examples of all replicas.
    // Error texts that no earlier report of this object has. With several replicas, a report has at
    // most one text from each replica. The reports of later epochs have the other texts.
    std::vector<std::string> names;
    void Add(const Report& other) {
      count += other.count;
      names.insert(names.end(), other.names.begin(), other.names.end());
    }
  };
  // Called by all replicas for the same batch, or for the same pass. `mine` has one error text for
  // each damaged example in this replica's part of the batch or pass. Returns the same report on
  // all replicas.
  absl::StatusOr<Report> Exchange(const std::vector<std::string>& mine);

 private:
  // Returns the texts in `mine` that are not in named_, without duplicates. Returns fewer texts if
  // the result and named_ together would have more than kMaxNamedExamples texts.
  std::vector<std::string> NewOf(const std::vector<std::string>& mine) const;

  const std::string data_;
  collective::Communicator* const communicator_;
  const c10::Device device_;
  DamageLog own_log_;
  DamageLog* const log_;
  // The error texts in all reports so far. Equal on all replicas.
  std::set<std::string> named_;
};

}  // namespace muster
