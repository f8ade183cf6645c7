// Messages to the service manager that has started this task: systemd, with Type=notify and
// WatchdogSec=. sd_notify(3) describes the messages.
#pragma once

namespace muster {

// The environment variable with the manager's socket: a path, or `@` followed by an abstract name.
inline constexpr const char* kNotifySocketVariable = "NOTIFY_SOCKET";
// The environment variables of the watchdog: the limit in microseconds, and the id of the watched
// process. The manager ends the process if it gets no message from the process within the limit.
inline constexpr const char* kWatchdogVariable = "WATCHDOG_USEC";
inline constexpr const char* kWatchdogPidVariable = "WATCHDOG_PID";

// Tells the manager that this task is ready. A chief or a ps calls TellReady when its server
// listens. Any other task calls TellReady after it has read its job and built its program. If the
// manager watches this process, TellReady also starts a thread. The thread sends a message each
// time half of the limit has passed, until the process ends. The thread does so even if the program
// hangs, because the job's own deadlines end such a process. Without a manager, does nothing. Never
// fails or blocks. May be called several times.
void TellReady();

}  // namespace muster
