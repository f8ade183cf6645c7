// Tells the service manager (systemd, Type=notify) that this task has started.
#pragma once

namespace muster {

// The variable with the manager's socket, a path or an abstract name after `@`.
inline constexpr const char* kNotifySocketVariable = "NOTIFY_SOCKET";

// A chief and a ps listen by now, another task has read its job and built its program. Without the
// variable, does nothing. Never fails and never blocks. May be called again.
void TellReady();

}  // namespace muster
