// Shows users the progress of a training run: one line redrawn at the bottom of a terminal, or
// occasional plain lines. The chief makes ProgressStates. It shows them itself, or sends them as
// JSON lines to `muster launch`, which shows them.
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
    kEpoch,     // A pass over a split has ended. `metrics` are its results.
    kEnd,       // The last state.
  };
  Kind kind = Kind::kStep;
  std::string split = "train";        // One of train, validation, test.
  int64_t epoch = 0, epochs = 0;      // From 0. `epochs` 0: unknown.
  int64_t step = 0, total_steps = 0;  // total_steps 0: unknown.
  int64_t done = 0, total = 0;        // Batches of this pass over the split. `total` 0: unknown.
  double examples_per_second = 0;     // 0: unknown.
  double seconds_left = -1;           // Below 0: unknown.
  // Share of the time spent waiting for peers. Below 0: unknown.
  double wait_share = -1;
  // Share of the time spent waiting for input. Below 0: unknown.
  double input_share = -1;
  double seconds = 0;                     // For kEpoch: duration of the pass.
  std::map<std::string, double> metrics;  // "loss", "accuracy", ... The loss is shown first.
};

Json ProgressToJson(const ProgressState& state);
absl::StatusOr<ProgressState> ProgressFromJson(const Json& json);

// Returns "1:23", "2:03:04" or "3 d 4 h".
std::string FormatSeconds(double seconds);
// Formats a measured number: 12,345, and 1.50 below 10.
std::string FormatCount(double count);
// Formats a whole number: 12,345.
std::string FormatGrouped(int64_t count);

// Returns one line of at most `width` columns. Drops fields, the least important first, until it
// fits. `age` is the time since the state was made, so that the bar shows a run without progress.
// Pure.
std::string RenderProgressBar(const ProgressState& state, int width, Duration age, bool unicode);
// Returns the state as a plain line of any length.
std::string RenderProgressLine(const ProgressState& state);

// True where the locale's encoding is UTF-8, for `unicode`.
bool LocaleIsUtf8();

// Decides what to show and when. No I/O. Time is an argument.
class ProgressDisplay {
 public:
  // With `terminal` there is a bar, and only the ends of passes are lines. Otherwise there is also
  // a line every 10 s for the steps in between.
  ProgressDisplay(bool terminal, bool unicode) : terminal_(terminal), unicode_(unicode) {}

  // Returns the lines to print permanently, above the bar.
  std::vector<std::string> Update(const ProgressState& state, MonotonicTime now);
  // Returns the bar. Empty: none.
  std::string Bar(int width, MonotonicTime now) const;
  // Returns when the bar changes without a new state, because its time left counts down. nullopt:
  // never.
  std::optional<MonotonicTime> NextChange(MonotonicTime now) const;

 private:
  bool terminal_, unicode_;
  std::optional<ProgressState> state_;
  MonotonicTime at_;
  std::optional<MonotonicTime> last_line_;
};

// Receives the chief's states. Not thread-safe.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // Does not block and cannot fail. Drops a state that no reader takes.
  virtual void Show(const ProgressState& state) = 0;
};

// The environment variable through which `muster launch` gives the chief the descriptor for its
// progress.
inline constexpr const char* kProgressFdVariable = "MUSTER_PROGRESS_FD";
// Returns the descriptor in that variable, or nullopt where it is unset or invalid.
std::optional<int> ProgressFdFromEnvironment();
// Sends JSON lines to `fd`, at most 10 a second (ends of passes always). Takes ownership of `fd`.
std::unique_ptr<ProgressSink> MakeProgressSender(int fd);
// Shows the bar on stderr where that is a terminal, with log lines above it. Otherwise writes plain
// lines to the log.
std::unique_ptr<ProgressSink> MakeProgressPrinter();
// Returns the sender where the variable is set, else the printer. Call it once, in main.
std::unique_ptr<ProgressSink> MakeProgressSink();

// Measures examples per second and the share of waiting over about the last `window` of steps. The
// numbers therefore change slowly enough to be read. Pure.
class RateMeter {
 public:
  explicit RateMeter(Duration window = std::chrono::seconds(5)) : window_(Seconds(window)) {}
  void Add(int64_t examples, double seconds, double wait_seconds);
  double examples_per_second() const { return seconds_ > 0 ? examples_ / seconds_ : 0; }
  double steps_per_second() const { return seconds_ > 0 ? steps_ / seconds_ : 0; }
  double wait_share() const { return seconds_ > 0 ? wait_ / seconds_ : -1; }

 private:
  double window_;
  double examples_ = 0, steps_ = 0, seconds_ = 0, wait_ = 0;  // Exponentially weighted sums.
};

}  // namespace muster
