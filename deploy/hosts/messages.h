// What the launcher and `muster run-tasks` say to each other through ssh, one line each. The
// launcher sends JSON objects with one key. run-tasks answers with such objects, and with the lines
// of the tasks: a letter for the kind, the index of the task, a space, the text.
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

// The longest line in bytes. Both sides read with a LineSplitter of this limit, and send nothing
// longer.
inline constexpr size_t kLongestMessage = 16 * 1024 * 1024;
// The launcher sends something at least this often.
inline constexpr Duration kPingEvery = std::chrono::seconds(5);
// After this time without a word of the launcher run-tasks ends the tasks. Less than the time in
// which ssh finds a dead connection, so that a host's tasks have ended when the launcher connects
// to it again.
inline constexpr Duration kSilenceLimit = std::chrono::seconds(25);

// A suspended launcher (Ctrl-Z) may be silent for this long.
inline constexpr Duration kSuspendLimit = std::chrono::hours(1);

// {"prepare": ...}: the free ports and the GPUs of the host.
struct PrepareRequest {
  int ports = 0;
  bool gpus = false;
};
// {"prepared": ...}
struct Prepared {
  std::vector<int> ports;
  std::vector<std::string> gpus;
  std::string error;  // One sentence; "" for none.
};
// {"reserve": ...}: the ports that the host has given before, for a run-tasks that replaces
// another.
struct ReserveRequest {
  std::vector<int> ports;
};
// {"start": ...}
struct StartRequest {
  int task = 0;
  std::vector<std::string> arguments;  // The first one is the program's path.
  std::map<std::string, std::string> environment;
  std::string key;     // The text of a run key file. "": none.
  std::string result;  // The path of result.json, whose content comes with the end. "": none.
};
// {"started": ...}, or {"ended": ...} with code 2 where the program could not be started.
struct Started {
  int task = 0;
  int64_t pid = 0;
};
// {"signal": ...}
struct SignalRequest {
  int task = 0;
  int signal = 0;
};
// {"suspend": ...}: the launcher is silent for up to this time, until its next message.
struct SuspendRequest {
  int seconds = 0;
};
// {"ended": ...}
struct Ended {
  int task = 0;
  launcher::ExitReport report;
  Json result;  // The content of result.json; null for none.
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
// Each reads the object of its key.
absl::StatusOr<PrepareRequest> PrepareRequestFrom(const Json& json);
absl::StatusOr<Prepared> PreparedFrom(const Json& json);
absl::StatusOr<ReserveRequest> ReserveRequestFrom(const Json& json);
absl::StatusOr<StartRequest> StartRequestFrom(const Json& json);
absl::StatusOr<Started> StartedFrom(const Json& json);
absl::StatusOr<SignalRequest> SignalRequestFrom(const Json& json);
absl::StatusOr<SuspendRequest> SuspendRequestFrom(const Json& json);
absl::StatusOr<Ended> EndedFrom(const Json& json);

// A line of a task.
struct TaskLine {
  char kind = 'o';  // 'o': its output, 'e': its errors, 'p': its progress.
  size_t task = 0;
  std::string_view text;
};
// Appends the line, with its newline. REQUIRES: the text is shorter than kLongestMessage by what is
// before it.
void AppendTaskLine(const TaskLine& line, std::string* out);
// nullopt for any other line.
std::optional<TaskLine> ParseTaskLine(std::string_view line);

}  // namespace muster::hosts
