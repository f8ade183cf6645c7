// The connection to one host. It runs ssh as a child of this process, and ssh runs `muster
// run-tasks` on the host. All functions except Ping must be called on the launcher's main thread.
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
#include "deploy/launcher/child.h"
#include "deploy/launcher/lines.h"
#include "muster/status.h"

namespace muster::hosts {

struct ConnectionOptions {
  std::vector<std::string> ssh;  // --ssh, split into words.
  std::string target;            // The destination for ssh.
  std::string control;           // The path of ssh's control socket.
  std::string muster;            // The path of `muster` on the host.
  std::string start_line;        // StartLine of ssh_command.h.
  // For --copy: the command that unpacks the archive, and the archive's path. Empty: nothing is
  // copied.
  std::string unpack, archive;
};

// Receives the messages and the output of a host.
class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;
  virtual void OnMessage(size_t host, const Json& message) = 0;
  virtual void OnTaskLine(size_t host, const TaskLine& line) = 0;
  // A line of output of ssh or of the host's shell, for the user.
  virtual void OnRemark(size_t host, std::string_view line) = 0;
  // The connection has ended. HostConnection::status() has the reason.
  virtual void OnLost(size_t host) = 0;
};

class HostConnection {
 public:
  // `listener` must outlive this object. `index` is the number of this host.
  HostConnection(ConnectionOptions options, size_t index, ConnectionListener& listener);
  ~HostConnection();
  HostConnection(const HostConnection&) = delete;
  HostConnection& operator=(const HostConnection&) = delete;

  // Starts to connect. Called for the first connection, and again after OnLost. The archive is
  // copied only once. Does not wait for the connection.
  absl::Status Open();
  // Returns true once `muster run-tasks` of this version accepts messages.
  bool ready() const { return phase_ == Phase::kReady; }
  // Returns true before Open and after OnLost.
  bool lost() const { return phase_ == Phase::kLost; }
  // Returns why the connection ended: PeerLost if another attempt may succeed, else
  // ConfigurationError.
  const absl::Status& status() const { return status_; }
  const std::string& target() const { return options_.target; }

  // Sends the message once the host is ready. Does not block.
  void Send(const Json& message);
  // Sets the first message of each later connection.
  void SetFirst(const Json& message) { first_ = Dump(message) + "\n"; }
  // Sends a ping if one is due. Thread-safe.
  void Ping() { input_.Ping(Clock::now()); }
  // Called with true before this process is suspended. The host then accepts silence for
  // kSuspendLimit. Called with false when this process continues.
  void SetSuspended(bool suspended);
  // Drops the messages that have not been sent.
  void DropWaiting() { waiting_.clear(); }

  static constexpr size_t kPolled = 5;
  // Appends kPolled descriptors to poll. If `output` is false, leaves out the output of the tasks.
  void AddPolled(bool output, std::vector<pollfd>* polled) const;
  void Read(const pollfd* polled);
  // Checks for ended processes and timeouts. Returns the latest time for the next call: `now` if it
  // called OnLost, nullopt if the connection was already lost.
  std::optional<MonotonicTime> Tick(MonotonicTime now);

  // Closes the input of run-tasks, which then ends all tasks of the host. Kills ssh if run-tasks
  // has not started.
  void Close();
  // Returns true if ssh has ended.
  bool Ended();

 private:
  enum class Phase { kLost, kConnecting, kCopying, kStarting, kReady };

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
  HostInput input_;  // The input of ssh_.
  launcher::LineSplitter out_{kLongestMessage}, err_, copy_err_;
  std::string first_;
  std::vector<std::string> waiting_;  // Messages to send once the host is ready.
  // The last lines of ssh. Before the host is ready, the listener has not received them.
  std::deque<std::string> remarks_;
  MonotonicTime remarked_;  // The time of the last line in remarks_.
  MonotonicTime limit_;
};

}  // namespace muster::hosts
