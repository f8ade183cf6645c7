// The connection to one host: ssh as a child of this process, and behind it `muster run-tasks`. All
// functions but Ping are called on the launcher's main thread.
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
  std::vector<std::string> ssh;  // The words of --ssh.
  std::string target;            // The host, as ssh takes it.
  std::string control;           // The path of the socket for further sessions.
  std::string muster;            // The path of the program `muster` on the host.
  std::string start_line;        // StartLine of ssh_command.h.
  // --copy: the command that unpacks, and the archive that is its input. Empty: nothing is copied.
  std::string unpack, archive;
};

// Receives what comes from the host.
class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;
  virtual void OnMessage(size_t host, const Json& message) = 0;
  virtual void OnTaskLine(size_t host, const TaskLine& line) = 0;
  // A line for the user, of ssh or of the host's shell.
  virtual void OnRemark(size_t host, std::string_view line) = 0;
  // The connection has ended: HostConnection::status() says why.
  virtual void OnLost(size_t host) = 0;
};

class HostConnection {
 public:
  // `listener` must outlive this object, which is the host number `index`.
  HostConnection(ConnectionOptions options, size_t index, ConnectionListener& listener);
  ~HostConnection();
  HostConnection(const HostConnection&) = delete;
  HostConnection& operator=(const HostConnection&) = delete;

  // Starts to connect, for the first time or after OnLost. Copies once.
  absl::Status Open();
  // True once `muster run-tasks` of the right version takes messages.
  bool ready() const { return phase_ == Phase::kReady; }
  // True before Open and after OnLost.
  bool lost() const { return phase_ == Phase::kLost; }
  // Why the connection ended. Its code says whether another attempt can help.
  const absl::Status& status() const { return status_; }
  const std::string& target() const { return options_.target; }

  // Sends the message, as soon as the host is ready.
  void Send(const Json& message);
  // Sets what is sent first on each connection that is ready from now on.
  void SetFirst(const Json& message) { first_ = Dump(message) + "\n"; }
  // Sends a ping when one is due. Any thread may call it.
  void Ping() { input_.Ping(Clock::now()); }
  // Before this process stops: tells the host that it will be silent. And when it goes on.
  void SetSuspended(bool suspended);
  // Drops the messages that have not been sent.
  void DropWaiting() { waiting_.clear(); }

  static constexpr size_t kPolled = 5;
  // Appends kPolled descriptors. Without `output`, leaves out what comes from the tasks.
  void AddPolled(bool output, std::vector<pollfd>* polled) const;
  void Read(const pollfd* polled);
  // Does what is due, and returns the time of the next call at the latest: `now` if it called
  // OnLost.
  std::optional<MonotonicTime> Tick(MonotonicTime now);

  // Ends the input of run-tasks, which ends all tasks of the host. Kills ssh if run-tasks has not
  // started.
  void Close();
  // True if ssh has ended.
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
  HostInput input_;  // Of the first session.
  launcher::LineSplitter out_{kLongestMessage}, err_, copy_err_;
  std::string first_;
  std::vector<std::string> waiting_;  // Until the host is ready.
  // The last lines of ssh, of which nothing was told before the host is ready.
  std::deque<std::string> remarks_;
  MonotonicTime remarked_;  // The time of the last one.
  MonotonicTime limit_;
};

}  // namespace muster::hosts
