// Decides how many threads load batches and how many batches are loaded ahead, if the job says
// "auto". Decisions are a pure function of the measurements. Decisions change the time at which a
// batch is ready, never its contents. Needs no LibTorch.
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
  std::optional<int> threads, prefetch;  // Fixed values of the job, if any.
  int cores = 1;                         // The number of cores that this process may use.
  int replicas = 1;                  // The number of replicas that the threads load batches for.
  int64_t bytes = int64_t{1} << 30;  // The limit on the size of all batches ahead.
};

// Measurements over some consecutive batches.
struct LoaderWindow {
  int64_t batches = 0;      // The number of batches that the replicas took.
  int64_t full = 0;         // The number of batches taken while the maximum number was ready.
  double seconds = 0;       // The time from the first batch to the last.
  double wait_seconds = 0;  // The mean time that a replica waited.
  int64_t batch_bytes = 0;  // The size of the largest batch.
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
  // If replicas waited for more than kStarved of the time, makes a trial: adds batches ahead if
  // waits come in bursts, otherwise adds a thread. The next window shows whether the trial helped.
  // If it did not help, undoes the change, and makes no trial for a number of windows, which
  // doubles each time. If for some windows no replica waited and all batches were always ready,
  // removes a thread.
  std::string Decide(const LoaderWindow& window);

  // Lowers the prefetch so that batches of `batch_bytes` bytes stay within LoaderLimits::bytes.
  // Called for each batch that is larger than all before. Without these calls, a large fixed number
  // of threads could exceed the limit before the first window ends. Returns the reason or "", as
  // Decide does.
  std::string Fit(int64_t batch_bytes);

  static constexpr double kStarved = 0.03;
  static constexpr int kMaxPrefetch = 32;

 private:
  struct Trial {
    LoaderSetting before;
    double seconds, wait;  // The means for one batch.
  };
  int MostThreads() const;
  int MostPrefetch(int64_t batch_bytes) const;
  // Returns a prefetch large enough to keep all threads busy.
  int PrefetchFor(int threads, int64_t batch_bytes) const;
  std::optional<LoaderSetting> Grown(const LoaderWindow& window) const;

  const LoaderLimits limits_;
  LoaderSetting setting_;
  std::optional<Trial> trial_;
  // hold_ is the number of windows before the next trial may start. patience_ is the value of hold_
  // after the next failed trial.
  int hold_ = 0, patience_ = 1;
  // idle_ counts consecutive windows in which all batches were always ready. When idle_ reaches
  // idle_needed_, a thread is removed.
  int idle_ = 0, idle_needed_ = 4;
  // If the last decision removed a thread, the number of threads before that decision.
  std::optional<int> shrunk_from_;
};

}  // namespace muster::data
