// Decides how many threads load batches and how many batches are loaded ahead, where a job leaves
// that to the input pipeline. Decisions are a pure function of the measurements. They change when a
// batch is ready, never its contents. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::data {

struct LoaderSetting {
  int threads = 1;
  int prefetch = 2;  // Batches of each replica, including those that are loading.
  friend bool operator==(const LoaderSetting&, const LoaderSetting&) = default;
};

struct LoaderLimits {
  std::optional<int> threads, prefetch;  // As the job fixes them.
  int cores = 1;                         // That this process may use.
  int replicas = 1;                      // Whose batches the threads load.
  int64_t bytes = int64_t{1} << 30;      // Of all batches ahead.
};

// Measurements over some batches.
struct LoaderWindow {
  int64_t batches = 0;      // Taken by all replicas.
  int64_t full = 0;         // Of those: taken when the maximum number was ready.
  double seconds = 0;       // From the first to the last.
  double wait_seconds = 0;  // Mean time that a replica waited.
  int64_t batch_bytes = 0;  // Of the largest one.
};

class LoaderTuner {
 public:
  explicit LoaderTuner(const LoaderLimits& limits);

  const LoaderSetting& setting() const { return setting_; }
  // True where the job fixes both values.
  bool fixed() const { return limits_.threads && limits_.prefetch; }
  // True where the window is long enough for a decision.
  bool Complete(const LoaderWindow& window) const;
  // Decides on a new setting. Returns the reason for the change, or "" where the setting is
  // unchanged.
  //
  // Where replicas waited for more than kStarved of the time, it tries one step. It adds batches
  // ahead where waits come in bursts, else a thread. The next window shows whether the step helped.
  // A step that did not help is undone and not tried again for a while, which doubles each time.
  // Where no replica waited and everything was ready at every take for a while, it removes a
  // thread.
  std::string Decide(const LoaderWindow& window);

  // Lowers the prefetch so that batches of `batch_bytes` bytes keep within LoaderLimits::bytes.
  // Called for each larger batch, because a fixed number of threads may begin as many batches
  // before the first window ends. Returns as Decide does.
  std::string Fit(int64_t batch_bytes);

  static constexpr double kStarved = 0.03;
  static constexpr int kMostPrefetch = 32;

 private:
  struct Trial {
    LoaderSetting before;
    double seconds, wait;  // For each batch.
  };
  int MostThreads() const;
  int MostPrefetch(int64_t batch_bytes) const;
  // Returns a prefetch large enough to keep all threads busy.
  int PrefetchFor(int threads, int64_t batch_bytes) const;
  std::optional<LoaderSetting> Grown(const LoaderWindow& window) const;

  const LoaderLimits limits_;
  LoaderSetting setting_;
  std::optional<Trial> trial_;
  // Number of windows left without a trial, and that number after the next failed trial.
  int hold_ = 0, patience_ = 1;
  // Number of windows in which all was ready, and the number that removes a thread.
  int idle_ = 0, idle_needed_ = 4;
  std::optional<int> shrunk_from_;  // The threads before the last decision, if that removed one.
};

}  // namespace muster::data
