// The messages between the launcher (`muster launch --hosts`) and `muster run-tasks`, which runs
// on each host and starts the host's tasks. ssh transports the messages, one per line. Both
// sides send JSON objects with one key. run-tasks also sends the output lines of the tasks. An
// output line is a letter for the kind, the index of the task, a space, and the text. The
// comment of each struct shows the key of its message. `task` is a task's index in the
// launcher's plan.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/processes/child.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::hosts {

// The maximum length of a line in bytes. Neither side sends longer lines. Both sides read with a
// LineSplitter (deploy/launcher/processes/lines.h) that has this limit.
inline constexpr size_t kLongestMessage = 16 * 1024 * 1024;
// The launcher sends a message at least this often.
inline constexpr Duration kPingEvery = std::chrono::seconds(5);
// If run-tasks receives no message from the launcher for this long, it ends the tasks. The
// launcher reconnects when ssh has detected a dead connection. kSilenceLimit must be less than the
// time that ssh needs for the detection. The old tasks of a host then end before the launcher
// reconnects.
inline constexpr Duration kSilenceLimit = std::chrono::seconds(25);

// While the launcher is suspended (Ctrl-Z), this limit replaces kSilenceLimit.
inline constexpr Duration kSuspendLimit = std::chrono::hours(1);

// {"prepare": ...}: requests `ports` free ports and, if `gpus` is true, the list of the host's
// GPUs.
struct PrepareRequest {
  int ports = 0;
  bool gpus = false;
};
// {"prepared": ...}: the answer to PrepareRequest.
struct Prepared {
  std::vector<int> ports;
  std::vector<std::string> gpus;
  std::string error;  // Why run-tasks failed, in one sentence. "" on success.
};
// {"reserve": ...}: requests the ports of an earlier Prepared again. The launcher sends this
// message after it has reconnected, because a new run-tasks process then serves the host.
struct ReserveRequest {
  std::vector<int> ports;
};
// {"start": ...}: starts a task.
struct StartRequest {
  int task = 0;
  std::vector<std::string> arguments;  // The program's path and its arguments.
  std::map<std::string, std::string> environment;
  std::string key;     // The text of a run key file (docs/security.md), or "".
  std::string result;  // The path of the result.json to send back in Ended, or "".
};
// {"started": ...}: the answer to StartRequest. If the program cannot be started, run-tasks answers
// with {"ended": ...} and code 2.
struct Started {
  int task = 0;
  int64_t pid = 0;
};
// {"signal": ...}: sends a signal to a task.
struct SignalRequest {
  int task = 0;
  int signal = 0;
};
// {"suspend": ...}: until the next message, run-tasks waits this long instead of kSilenceLimit.
struct SuspendRequest {
  int seconds = 0;
};
// {"ended": ...}: the process of a task has ended.
struct Ended {
  int task = 0;
  launcher::ExitReport report;
  Json result;  // The content of StartRequest::result, or null.
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
// Each function parses the value in a message, without the message's key. Returns
// ConfigurationError if the value is invalid.
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
