// Chooses the number of threads that load batches and the number of batches to load ahead, if the
// job says "auto". A choice depends only on the measurements. It affects when a batch is ready, but
// never the contents of a batch. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::data {

struct LoaderSetting {
  int threads = 1;
  int prefetch = 2;  // The number of batches of each replica that are loading or ready.
  friend bool operator==(const LoaderSetting&, const LoaderSetting&) = default;
};

struct LoaderLimits {
  std::optional<int> threads, prefetch;  // The values that the job fixes. nullopt: "auto".
  int cores = 1;                         // The number of cores that this process may use.
  int replicas = 1;  // The number of replicas for which the threads load batches.
  // The limit on the total size, in bytes, of all batches that are loaded ahead.
  int64_t bytes = int64_t{1} << 30;
};

// The measurements of a window, which is a series of consecutive batches.
struct LoaderWindow {
  int64_t batches = 0;  // The number of batches that the replicas took.
  // The number of batches that a replica took while its queue was full. A queue is full if
  // `prefetch` batches are ready.
  int64_t full = 0;
  double seconds = 0;       // The time from the first batch to the last batch.
  double wait_seconds = 0;  // The time that a replica waited, averaged over the replicas.
  int64_t batch_bytes = 0;  // The size of the largest batch so far, in bytes.
};

class LoaderTuner {
 public:
  explicit LoaderTuner(const LoaderLimits& limits);

  const LoaderSetting& setting() const { return setting_; }
  // Returns true if the job fixes both values.
  bool fixed() const { return limits_.threads && limits_.prefetch; }
  // Returns true if the window is long enough for a decision.
  bool Complete(const LoaderWindow& window) const;
  // Chooses the next setting. Returns the reason for a change, or "" if the setting stays the same.
  //
  // If replicas waited for more than the fraction kStarved of the time, Decide starts a trial. If
  // the waits come in bursts, the trial loads more batches ahead. Otherwise, the trial adds
  // threads. The next window shows whether the trial helped. After a trial that did not help,
  // Decide undoes the change and starts no trial for a number of windows. This number doubles with
  // each failed trial. If the queues were full at every batch of several consecutive windows,
  // Decide removes a thread.
  std::string Decide(const LoaderWindow& window);

  // Lowers the prefetch so that batches of `batch_bytes` bytes stay within LoaderLimits::bytes.
  // Called for each batch that is larger than all batches before it. Without these calls, a job
  // that fixes a large number of threads could exceed the limit before the first window ends.
  // Returns the reason for a change, or "", as Decide does.
  std::string Fit(int64_t batch_bytes);

  static constexpr double kStarved = 0.03;
  static constexpr int kMaxPrefetch = 32;

 private:
  struct Trial {
    LoaderSetting before;
    double seconds, wait;  // Mean times for one batch before the trial, in seconds.
  };
  int MostThreads() const;
  int MostPrefetch(int64_t batch_bytes) const;
  // Returns a prefetch large enough to keep all threads busy.
  int PrefetchFor(int threads, int64_t batch_bytes) const;
  std::optional<LoaderSetting> Grown(const LoaderWindow& window) const;

  const LoaderLimits limits_;
  LoaderSetting setting_;
  std::optional<Trial> trial_;
  // hold_ is the number of windows that must pass before the next trial. patience_ is the value
  // that hold_ gets if the next trial fails.
  int hold_ = 0, patience_ = 1;
  // idle_ counts consecutive windows in which the queues were full at every batch. When idle_
  // reaches idle_needed_, Decide removes a thread.
  int idle_ = 0, idle_needed_ = 4;
  // If Decide's last change removed a thread, the number of threads before this change.
  std::optional<int> shrunk_from_;
};

}  // namespace muster::data
