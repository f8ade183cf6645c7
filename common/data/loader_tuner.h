// How many threads load batches and how many batches are ready ahead, where a job leaves that to
// the input pipeline. Decisions are a pure function of what was measured; they change when a batch
// is there, never what is in it. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::data {

struct LoaderSetting {
  int threads = 1;
  int prefetch = 2;  // batches of each replica, those that are being loaded included
  friend bool operator==(const LoaderSetting&, const LoaderSetting&) = default;
};

struct LoaderLimits {
  std::optional<int> threads, prefetch;  // as the job fixes them
  int cores = 1;                         // that this process may use
  int replicas = 1;                      // whose batches the threads load
  int64_t bytes = int64_t{1} << 30;      // of all batches ahead
};

// What was seen while some batches were taken.
struct LoaderWindow {
  int64_t batches = 0;      // taken, by all replicas
  int64_t full = 0;         // of those: taken when as many as there may be were ready
  double seconds = 0;       // from the first to the last
  double wait_seconds = 0;  // that a replica waited, in the mean
  int64_t batch_bytes = 0;  // of the largest one
};

class LoaderTuner {
 public:
  explicit LoaderTuner(const LoaderLimits& limits);

  const LoaderSetting& setting() const { return setting_; }
  // Nothing is left to decide.
  bool fixed() const { return limits_.threads && limits_.prefetch; }
  // Whether a window is long enough to decide by.
  bool Complete(const LoaderWindow& window) const;
  // Decides. Returns why the setting is another one now; "": it is the same.
  //
  // Where replicas waited for more than kStarved of the time, one step is tried: more batches ahead
  // where waits come in bursts, else another thread. The next window says whether it helped; what
  // did not is taken back, and not tried again for a while that doubles each time. Where nobody
  // waited and all was ready at every take for a while, a thread less will do.
  std::string Decide(const LoaderWindow& window);

  // A batch has so many bytes: with a number of threads that is fixed as many may be begun before
  // the first window ends. Returns as Decide.
  std::string Fit(int64_t batch_bytes);

  static constexpr double kStarved = 0.03;
  static constexpr int kMostPrefetch = 32;

 private:
  struct Trial {
    LoaderSetting before;
    double seconds, wait;  // for a batch
  };
  int MostThreads() const;
  int MostPrefetch(int64_t batch_bytes) const;
  // Enough ahead for all threads to have work.
  int PrefetchFor(int threads, int64_t batch_bytes) const;
  std::optional<LoaderSetting> Grown(const LoaderWindow& window) const;

  const LoaderLimits limits_;
  LoaderSetting setting_;
  std::optional<Trial> trial_;
  int hold_ = 0, patience_ = 1;     // windows without a trial; after the next that fails
  int idle_ = 0, idle_needed_ = 4;  // windows in which all was ready; until one thread goes
  std::optional<int> shrunk_from_;  // by the last decision that was no trial
};

}  // namespace muster::data
