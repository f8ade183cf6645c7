// Shows the progress of a training run: a bar at the bottom of a terminal, or occasional plain
// lines. The chief makes ProgressStates. Either the chief shows them, or it sends them as JSON
// lines to `muster launch`, which shows them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct ProgressState {
  enum class Kind {
    kStep,      // A step of training.
    kEvaluate,  // Within a validation or test pass.
    kEpoch,     // A pass over a split ended. `metrics` has its results.
    kEnd,       // The last state.
  };
  Kind kind = Kind::kStep;
  std::string split = "train";        // "train", "validation" or "test".
  int64_t epoch = 0, epochs = 0;      // `epoch` counts from 0. `epochs` is 0 if unknown.
  int64_t step = 0, total_steps = 0;  // `total_steps` is 0 if unknown.
  int64_t done = 0, total = 0;     // Batches of this pass over the split. `total` is 0 if unknown.
  double examples_per_second = 0;  // 0 if unknown.
  double seconds_left = -1;        // Negative if unknown.
  // The fraction of the time spent waiting for peers. Negative if unknown.
  double wait_share = -1;
  // The fraction of the time spent waiting for input. Negative if unknown.
  double input_share = -1;
  double seconds = 0;  // For kEpoch: the duration of the pass.
  // For example "loss" and "accuracy". The loss is shown first.
  std::map<std::string, double> metrics;
};

Json ProgressToJson(const ProgressState& state);
absl::StatusOr<ProgressState> ProgressFromJson(const Json& json);

// Formats a duration, such as "1:23", "2:03:04" or "3 d 4 h".
std::string FormatSeconds(double seconds);
// Formats a measured number, such as "12,345", or "1.50" below 10.
std::string FormatCount(double count);
// Formats an integer, such as "12,345".
std::string FormatGrouped(int64_t count);

// Returns the bar, one line of at most `width` columns. Drops the least important fields until the
// line fits. `age` is the time since the state was made, so that the bar can show that a run makes
// no progress. Pure.
std::string RenderProgressBar(const ProgressState& state, int width, Duration age, bool unicode);
// Returns the state as a plain line of any length.
std::string RenderProgressLine(const ProgressState& state);

// Returns true if the locale's encoding is UTF-8. Callers pass this as `unicode`.
bool LocaleIsUtf8();

// Selects the output and its time. Does no I/O and reads no clock.
class ProgressDisplay {
 public:
  // If `terminal` is true, shows a bar, and prints lines only for the ends of passes. If false,
  // shows no bar, and also prints a line for the current step every 10 s.
  ProgressDisplay(bool terminal, bool unicode) : terminal_(terminal), unicode_(unicode) {}

  // Returns the lines to print above the bar.
  std::vector<std::string> Update(const ProgressState& state, MonotonicTime now);
  // Returns the bar, or "" if there is none.
  std::string Bar(int width, MonotonicTime now) const;
  // Returns the time at which the bar next changes without a new state, because the time left
  // counts down. Returns nullopt if it does not change.
  std::optional<MonotonicTime> NextChange(MonotonicTime now) const;

 private:
  bool terminal_, unicode_;
  std::optional<ProgressState> state_;
  MonotonicTime at_;
  std::optional<MonotonicTime> last_line_;
};

// Shows or sends the chief's states. Not thread-safe.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // Does not block and cannot fail. Drops the state if the reader is not ready.
  virtual void Show(const ProgressState& state) = 0;
};

// The environment variable with the descriptor to which the chief sends its progress. `muster
// launch` sets it.
inline constexpr const char* kProgressFdVariable = "MUSTER_PROGRESS_FD";
// Returns the descriptor in kProgressFdVariable, or nullopt if the variable is unset or invalid.
std::optional<int> ProgressFdFromEnvironment();
// Returns a sink that sends JSON lines to `fd`. Sends all ends of passes, and at most 10 other
// states per second. The sink owns `fd`.
std::unique_ptr<ProgressSink> MakeProgressSender(int fd);
// Returns a sink that shows the bar on stderr, below the log lines. If stderr is not a terminal,
// the sink writes plain lines to the log.
std::unique_ptr<ProgressSink> MakeProgressPrinter();
// Returns a sender if kProgressFdVariable is set, otherwise a printer. Call this once, in main.
std::unique_ptr<ProgressSink> MakeProgressSink();

// Measures examples per second and the fraction of time spent waiting, over about the last `window`
// of time. The numbers therefore change slowly enough to read. Reads no clock.
class RateMeter {
 public:
  explicit RateMeter(Duration window = std::chrono::seconds(5)) : window_(Seconds(window)) {}
  void Add(int64_t examples, double seconds, double wait_seconds);
  double examples_per_second() const { return seconds_ > 0 ? examples_ / seconds_ : 0; }
  double steps_per_second() const { return seconds_ > 0 ? steps_ / seconds_ : 0; }
  double wait_share() const { return seconds_ > 0 ? wait_ / seconds_ : -1; }

 private:
  double window_;
  // Sums with exponentially decreasing weights.
  double examples_ = 0, steps_ = 0, seconds_ = 0, wait_ = 0;
};

}  // namespace muster
