// Shows the progress of a training run, either as a bar at the bottom of a terminal or as plain
// lines. The chief makes a ProgressState for each change. If `muster launch` has started the chief,
// the chief sends the states as JSON lines to `muster launch`, which shows the states. Any other
// chief shows its states itself.
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
    kStep,      // A step of training has ended.
    kEvaluate,  // A batch of a validation or test pass has ended.
    kEpoch,     // A pass over a split (training, validation or test data) has ended.
    kEnd,       // The run has ended.
  };
  Kind kind = Kind::kStep;
  std::string split = "train";        // "train", "validation" or "test".
  int64_t epoch = 0, epochs = 0;      // `epoch` counts from 0. `epochs` is 0 if unknown.
  int64_t step = 0, total_steps = 0;  // `total_steps` is 0 if unknown.
  int64_t done = 0, total = 0;        // Batches of this pass over `split`. `total` is 0 if unknown.
  double examples_per_second = 0;     // 0 if unknown.
  double seconds_left = -1;           // Estimated time to the end of training. Negative if unknown.
  // The time spent waiting for peers, as a fraction of the whole time. Negative if unknown.
  double wait_share = -1;
  // The time spent waiting for input, as a fraction of the whole time. Negative if unknown.
  double input_share = -1;
  double seconds = 0;  // Only for kEpoch: the duration of the pass.
  // Keyed by name, such as "loss" and "accuracy". The loss is shown first.
  std::map<std::string, double> metrics;
};

Json ProgressToJson(const ProgressState& state);
absl::StatusOr<ProgressState> ProgressFromJson(const Json& json);

// Formats a duration, such as "1:23", "2:03:04" or "3 d 4 h".
std::string FormatSeconds(double seconds);
// Formats a measured number, such as "12,345". Below 10, there are two decimals ("1.50").
std::string FormatCount(double count);
// Formats an integer, such as "12,345".
std::string FormatGrouped(int64_t count);

// Returns the bar, one line of at most `width` columns. Omits the least important fields if not all
// fit. `age` is the time since the state was made. If `age` is above 5 s, the bar shows "no
// progress for" and the age. `unicode` permits characters other than ASCII. Pure function.
std::string RenderProgressBar(const ProgressState& state, int width, Duration age, bool unicode);
// Returns the state as a plain line of any length.
std::string RenderProgressLine(const ProgressState& state);

// Returns true if the locale's encoding is UTF-8. Callers pass the result as `unicode`.
bool LocaleIsUtf8();

// Computes the bar and log lines. Does no I/O and reads no clock: the caller prints the results.
class ProgressDisplay {
 public:
  // If `terminal` is true, there is a bar, and Update returns a line for the end of each pass. If
  // `terminal` is false, there is no bar, and Update also returns a line for the current step every
  // 10 s.
  ProgressDisplay(bool terminal, bool unicode) : terminal_(terminal), unicode_(unicode) {}

  // Takes a new state. Returns the lines to print above the bar.
  std::vector<std::string> Update(const ProgressState& state, MonotonicTime now);
  // Returns the bar. Returns "" if there is no bar.
  std::string Bar(int width, MonotonicTime now) const;
  // The bar shows the time left, so the caller must draw the bar regularly, even without a new
  // state. Returns the next time to draw the bar. Returns nullopt if there is no bar.
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
// launch` sets this variable.
inline constexpr const char* kProgressFdVariable = "MUSTER_PROGRESS_FD";
// Returns the descriptor in kProgressFdVariable, or nullopt if the variable is unset or invalid.
std::optional<int> ProgressFdFromEnvironment();
// Returns a sink that sends JSON lines to `fd`. The sink sends all kEpoch and kEnd states, and at
// most 10 other states per second. The sink owns `fd`.
std::unique_ptr<ProgressSink> MakeProgressSender(int fd);
// Returns a sink that shows the bar on stderr, below the log lines. If stderr is not a terminal,
// the sink writes plain lines to the log.
std::unique_ptr<ProgressSink> MakeProgressPrinter();
// Returns a MakeProgressSender sink if ProgressFdFromEnvironment returns a descriptor, and
// otherwise a MakeProgressPrinter sink. Must be called at most once.
std::unique_ptr<ProgressSink> MakeProgressSink();

// Computes rates, and the time spent waiting as a fraction of the whole time. The results are
// averages over about the last 5 s, so that they change slowly enough to read. Reads no clock.
class RateMeter {
 public:
  // Adds one step that took `seconds`, including `wait_seconds` of waiting.
  void Add(int64_t examples, double seconds, double wait_seconds);
  double examples_per_second() const { return seconds_ > 0 ? examples_ / seconds_ : 0; }
  double steps_per_second() const { return seconds_ > 0 ? steps_ / seconds_ : 0; }
  double wait_share() const { return seconds_ > 0 ? wait_ / seconds_ : -1; }

 private:
  // Sums with exponentially decreasing weights.
  double examples_ = 0, steps_ = 0, seconds_ = 0, wait_ = 0;
};

}  // namespace muster
