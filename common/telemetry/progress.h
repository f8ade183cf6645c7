// How far a training run is, for people: one line redrawn at the bottom of a terminal, or plain
// lines now and then. The chief makes ProgressStates; it shows them itself, or sends them as JSON
// lines to `muster launch`, which does.
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
    kStep,      // a step of training
    kEvaluate,  // within a validation or test pass
    kEpoch,     // a pass over a split has ended; `metrics` are its results
    kEnd,       // nothing more will come
  };
  Kind kind = Kind::kStep;
  std::string split = "train";        // train | validation | test
  int64_t epoch = 0, epochs = 0;      // from 0; epochs 0: not known
  int64_t step = 0, total_steps = 0;  // total_steps 0: not known
  int64_t done = 0, total = 0;        // batches of this pass over the split; total 0: not known
  double examples_per_second = 0;     // 0: not known
  double seconds_left = -1;           // below 0: not known
  double wait_share = -1;             // of the time, spent waiting for peers; below 0: not known
  double input_share = -1;            // of the time, spent waiting for input; below 0: not known
  double seconds = 0;                 // kEpoch: what the pass took
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...; loss is shown first
};

Json ProgressToJson(const ProgressState& state);
absl::StatusOr<ProgressState> ProgressFromJson(const Json& json);

// "1:23", "2:03:04", "3 d 4 h".
std::string FormatSeconds(double seconds);
// A measured number: 12,345, and 1.50 below 10.
std::string FormatCount(double count);
// A whole number: 12,345.
std::string FormatGrouped(int64_t count);

// Pure. One line of at most `width` columns: fields are left out, the least important first, until
// it fits. `age` is how long ago the state was made: a run that makes no progress says so.
std::string RenderProgressBar(const ProgressState& state, int width, Duration age, bool unicode);
// The same as a plain line, of any length.
std::string RenderProgressLine(const ProgressState& state);

// Whether the locale's characters are UTF-8, for `unicode`.
bool LocaleIsUtf8();

// Decides what to show and when. No I/O; time is an argument.
class ProgressDisplay {
 public:
  // `terminal`: there is a bar, and only the ends of passes are lines of their own; else the steps
  // in between are too, one every 10 s.
  ProgressDisplay(bool terminal, bool unicode) : terminal_(terminal), unicode_(unicode) {}

  // The lines to print for good, above the bar.
  std::vector<std::string> Update(const ProgressState& state, MonotonicTime now);
  // The bar; empty: none.
  std::string Bar(int width, MonotonicTime now) const;
  // When the bar changes even if nothing comes (its time left counts down); nullopt: never.
  std::optional<MonotonicTime> NextChange(MonotonicTime now) const;

 private:
  bool terminal_, unicode_;
  std::optional<ProgressState> state_;
  MonotonicTime at_;
  std::optional<MonotonicTime> last_line_;
};

// Where the chief's states go. For one thread.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // Does not block and cannot fail: a state that nobody takes is dropped.
  virtual void Show(const ProgressState& state) = 0;
};

// The variable by which `muster launch` tells the chief where its progress goes.
inline constexpr const char* kProgressFdVariable = "MUSTER_PROGRESS_FD";
// The descriptor of that variable; nullopt where it is unset or none.
std::optional<int> ProgressFdFromEnvironment();
// JSON lines to `fd`, at most 10 a second (ends of passes always). Takes the descriptor over.
std::unique_ptr<ProgressSink> MakeProgressSender(int fd);
// The bar on stderr where that is a terminal (log lines scroll above it), else plain lines in the
// log.
std::unique_ptr<ProgressSink> MakeProgressPrinter();
// The sender where the variable is set, else the printer. Call once, in main.
std::unique_ptr<ProgressSink> MakeProgressSink();

// Examples a second and the share of waiting, over about the last `window` of steps: what changes
// slowly enough to be read. Pure.
class RateMeter {
 public:
  explicit RateMeter(Duration window = std::chrono::seconds(5)) : window_(Seconds(window)) {}
  void Add(int64_t examples, double seconds, double wait_seconds);
  double examples_per_second() const { return seconds_ > 0 ? examples_ / seconds_ : 0; }
  double steps_per_second() const { return seconds_ > 0 ? steps_ / seconds_ : 0; }
  double wait_share() const { return seconds_ > 0 ? wait_ / seconds_ : -1; }

 private:
  double window_;
  double examples_ = 0, steps_ = 0, seconds_ = 0, wait_ = 0;  // exponentially weighted sums
};

}  // namespace muster
