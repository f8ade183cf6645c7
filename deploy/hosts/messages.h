// The messages between the launcher and `muster run-tasks`, one per line, over ssh. The launcher
// sends JSON objects with one key. run-tasks sends such objects, and the output lines of the tasks:
// a letter for the kind, the index of the task, a space, the text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/child.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::hosts {

// The limit of a line in bytes. Both sides read with a LineSplitter of this limit, and send no
// longer lines.
inline constexpr size_t kLongestMessage = 16 * 1024 * 1024;
// The launcher sends a message at least this often.
inline constexpr Duration kPingEvery = std::chrono::seconds(5);
// After this time without a message of the launcher, run-tasks ends the tasks. It must be less than
// the time in which ssh detects a dead connection. The tasks of a host have then ended before the
// launcher reconnects.
inline constexpr Duration kSilenceLimit = std::chrono::seconds(25);

// A suspended launcher (Ctrl-Z) may be silent for this long.
inline constexpr Duration kSuspendLimit = std::chrono::hours(1);

// {"prepare": ...}: requests free ports, and the list of the host's GPUs.
struct PrepareRequest {
  int ports = 0;
  bool gpus = false;
};
// {"prepared": ...}
struct Prepared {
  std::vector<int> ports;
  std::vector<std::string> gpus;
  std::string error;  // One sentence, "" if there is none.
};
// {"reserve": ...}: the ports of an earlier Prepared. Sent to a run-tasks that replaces another.
struct ReserveRequest {
  std::vector<int> ports;
};
// {"start": ...}
struct StartRequest {
  int task = 0;
  std::vector<std::string> arguments;  // The first one is the program's path.
  std::map<std::string, std::string> environment;
  std::string key;     // The text of a run key file, "" if there is none.
  std::string result;  // The path of result.json, whose content Ended returns. "": none.
};
// {"started": ...}. If the program cannot be started, run-tasks sends {"ended": ...} with code 2
// instead.
struct Started {
  int task = 0;
  int64_t pid = 0;
};
// {"signal": ...}
struct SignalRequest {
  int task = 0;
  int signal = 0;
};
// {"suspend": ...}: the launcher may be silent for this time, until its next message.
struct SuspendRequest {
  int seconds = 0;
};
// {"ended": ...}
struct Ended {
  int task = 0;
  launcher::ExitReport report;
  Json result;  // The content of result.json, null if there is none.
};

Json ToJson(const PrepareRequest& request);
Json ToJson(const Prepared& prepared);
Json ToJson(const ReserveRequest& request);
Json ToJson(const StartRequest& request);
Json ToJson(const Started& started);
Json ToJson(const SignalRequest& request);
Json ToJson(const SuspendRequest& request);
Json ToJson(const Ended& ended);
Json Ping();
// Each parses the value of its message's key. Returns ConfigurationError if it is invalid.
absl::StatusOr<PrepareRequest> PrepareRequestFrom(const Json& json);
absl::StatusOr<Prepared> PreparedFrom(const Json& json);
absl::StatusOr<ReserveRequest> ReserveRequestFrom(const Json& json);
absl::StatusOr<StartRequest> StartRequestFrom(const Json& json);
absl::StatusOr<Started> StartedFrom(const Json& json);
absl::StatusOr<SignalRequest> SignalRequestFrom(const Json& json);
absl::StatusOr<SuspendRequest> SuspendRequestFrom(const Json& json);
absl::StatusOr<Ended> EndedFrom(const Json& json);

// An output line of a task.
struct TaskLine {
  char kind = 'o';  // 'o': stdout, 'e': stderr, 'p': progress.
  size_t task = 0;
  std::string_view text;
};
// Appends the line and a newline. REQUIRES: the line with its prefix is shorter than
// kLongestMessage.
void AppendTaskLine(const TaskLine& line, std::string* out);
// Returns nullopt if `line` is not a TaskLine.
std::optional<TaskLine> ParseTaskLine(std::string_view line);

}  // namespace muster::hosts
