// The connection from the launcher (`muster launch --hosts`) to one host. HostConnection starts ssh
// as a child process, and ssh runs `muster run-tasks` on the host. run-tasks starts the host's
// tasks. Call all functions except Ping on the launcher's main thread.
#pragma once

#include <poll.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "deploy/hosts/host_input.h"
#include "deploy/hosts/messages.h"
#include "deploy/launcher/processes/child.h"
#include "deploy/launcher/processes/lines.h"
#include "muster/status.h"

namespace muster::hosts {

struct ConnectionOptions {
  std::vector<std::string> ssh;  // The words of the ssh command (--ssh).
  std::string target;            // The destination for ssh.
  std::string control;           // The path of ssh's control socket, on the launcher's host.
  std::string muster;            // The path of `muster` on the host.
  std::string start_line;        // The result of StartLine (ssh_command.h).
  // For --copy: the shell command that unpacks the archive on the host, and the archive's path on
  // the launcher's host. If `unpack` is empty, nothing is copied.
  std::string unpack, archive;
};

// Receives the messages (messages.h) and the output of the hosts. `host` is the number of the host.
class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;
  virtual void OnMessage(size_t host, const Json& message) = 0;
  virtual void OnTaskLine(size_t host, const TaskLine& line) = 0;
  // Called with a line that ssh or the host's shell has printed. The line is for the user.
  virtual void OnRemark(size_t host, std::string_view line) = 0;
  // Called when the connection has ended. HostConnection::status() returns the reason.
  virtual void OnLost(size_t host) = 0;
};

class HostConnection {
 public:
  // `index` is the number of the host, which the listener receives. `listener` must outlive this
  // object.
  HostConnection(ConnectionOptions options, size_t index, ConnectionListener& listener);
  ~HostConnection();
  HostConnection(const HostConnection&) = delete;
  HostConnection& operator=(const HostConnection&) = delete;

  // Starts to connect, and does not wait for the connection. Call Open once for the first
  // connection, and again after each OnLost to reconnect. The archive is copied to the host only
  // once, even if the connection is lost later.
  absl::Status Open();
  // Returns true once the host has the files of the archive, or if there is no archive.
  bool copied() const { return options_.unpack.empty() || has_copy_; }
  // Starts run-tasks on a host to which the archive was copied. Connections without an archive, and
  // later connections, start run-tasks by themselves.
  void StartAfterCopy();
  // Returns true while run-tasks accepts messages. Before that, HostConnection checks the version
  // of `muster` on the host.
  bool ready() const { return phase_ == Phase::kReady; }
  // Returns true before the first Open, and after OnLost until the next Open.
  bool lost() const { return phase_ == Phase::kLost; }
  // Returns why the connection ended: PeerLost if another attempt may succeed, or else
  // ConfigurationError (muster/status.h).
  const absl::Status& status() const { return status_; }
  const std::string& target() const { return options_.target; }

  // Sends the message, or stores it until ready() is true. Does not block.
  void Send(const Json& message);
  // Sets the message that each later connection sends first.
  void SetFirst(const Json& message) { first_ = Dump(message) + "\n"; }
  // Sends a ping if nothing was sent for kPingEvery (messages.h). Thread-safe.
  void Ping() { input_.Ping(Clock::now()); }
  // Call SetSuspended(true) before this process is suspended (Ctrl-Z). run-tasks then waits up to
  // kSuspendLimit, instead of kSilenceLimit, for a message from the launcher. Call
  // SetSuspended(false) when this process continues.
  void SetSuspended(bool suspended);
  // Drops the messages that Send has stored.
  void DropWaiting() { waiting_.clear(); }

  static constexpr size_t kPolled = 5;
  // Appends kPolled descriptors for poll(). If `output` is false, the descriptor of the tasks'
  // output is -1, so that poll() ignores it.
  void AddPolled(bool output, std::vector<pollfd>* polled) const;
  // Reads the available data. `polled` points to the descriptors of AddPolled, after poll().
  void Read(const pollfd* polled);
  // Checks for ended processes and timeouts. Returns the time by which Tick must be called again.
  // Returns `now` if this call has called OnLost. Returns nullopt if lost() was true before this
  // call.
  std::optional<MonotonicTime> Tick(MonotonicTime now);

  // Closes the input of run-tasks. As a result, run-tasks ends all tasks of the host. Kills ssh if
  // run-tasks has not started.
  void Close();
  // Returns true if ssh has ended.
  bool Ended();

 private:
  enum class Phase { kLost, kConnecting, kCopying, kCopied, kStarting, kReady };

  void Forget();
  void StartCopy();
  void EndCopy(int code);
  void SendStartLine();
  void OnLine(std::string_view line);
  void OnError(std::string_view line);
  void CheckVersion(std::string_view version);
  bool ReadSome(Fd* from, launcher::LineSplitter* lines, bool error);
  void Drain();
  absl::Status WhyEnded(int code) const;
  void Fail(absl::Status status);

  const ConnectionOptions options_;
  const size_t index_;
  ConnectionListener& listener_;
  Phase phase_ = Phase::kLost;
  absl::Status status_;
  std::optional<launcher::Child> ssh_, copy_;
  bool has_copy_ = false;
  HostInput input_;  // The standard input of ssh_.
  launcher::LineSplitter out_{kLongestMessage}, err_, copy_err_;
  std::string first_;
  std::vector<std::string> waiting_;  // Messages to send once the host is ready.
  // The last lines that ssh printed. Until the host is ready, lines are only stored here. If the
  // connection ends before the host is ready, OnRemark receives all stored lines except the last,
  // which status() contains. Once the host is ready, OnRemark receives each line at once, and only
  // the newest line is stored, as a possible reason for status().
  std::deque<std::string> remarks_;
  MonotonicTime remarked_;  // When the last line in remarks_ arrived.
  MonotonicTime limit_;
};

}  // namespace muster::hosts
