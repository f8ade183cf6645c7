// What a task tells the service manager that has started it: systemd, Type=notify, WatchdogSec=.
// sd_notify(3) describes the messages.
#pragma once

namespace muster {

// The variable with the manager's socket, a path or an abstract name after `@`.
inline constexpr const char* kNotifySocketVariable = "NOTIFY_SOCKET";
// The microseconds within which the manager must hear of the process again, and the process's id.
inline constexpr const char* kWatchdogVariable = "WATCHDOG_USEC";
inline constexpr const char* kWatchdogPidVariable = "WATCHDOG_PID";

// A chief and a ps listen by now, another task has read its job and built its program. If the
// manager watches this process, a thread tells it from now on that the process runs. A program that
// hangs is not the manager's business: the deadlines of the job end its process. Without a manager,
// does nothing. Never fails and never blocks. May be called again.
void TellReady();

}  // namespace muster
