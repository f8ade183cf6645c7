// Neighbours tests, before a job starts, which tasks of a cluster can reach each other. Each task
// listens on its own port and calls all other tasks. A call sends one line of JSON each way, with
// the task's name, version, cluster, and the tasks that it has reached so far. Threads of this
// object do the work. Used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::preflight {

struct NeighbourOptions {
  std::string self;                              // "worker:1"
  std::map<std::string, std::string> addresses;  // The addresses of all tasks, by name.
  std::vector<std::string> listen;               // Numeric ip:port addresses of this host.
  std::string version, cluster_digest;
  // The certificate authorities that this task accepts, its own first (Identity::Authorities).
  // {"plaintext"} if the task accepts every peer. Empty if the task cannot load its key or
  // certificate.
  std::vector<std::string> identity;
  Duration between_calls = std::chrono::milliseconds(300);
  Duration call = std::chrono::seconds(2);  // Timeout of one call.
  // Receives each connection that begins with a line of a session (session.h). May be empty. Called
  // on several threads, until the Neighbours object is destroyed.
  std::function<void(Fd socket, std::string line)> on_session;
};

struct Neighbour {
  bool resolved = false;  // The neighbour's host name was resolved.
  bool reached = false;   // The neighbour answered a call of this task.
  bool called = false;    // The neighbour called this task.
  std::string why;        // Why `reached` is false.
  std::string version, cluster_digest, host;
  std::vector<std::string> identity;
};

// Returns whether two tasks accept each other's certificates, judged by the lists in `identity`.
bool AcceptEachOther(const std::vector<std::string>& a, const std::vector<std::string>& b);

struct Reachability {
  std::map<std::string, Neighbour> neighbours;  // All tasks except this one.
  // Maps a task to the tasks that it has reached, from its last report. A task without an entry has
  // not reported.
  std::map<std::string, std::set<std::string>> reached;
  // True if all tasks have reached each other, by their reports. For a task with no `listen`
  // addresses: true if it has reached all others.
  bool complete = false;
};

class Neighbours {
 public:
  // Starts to listen and to call. Returns ConfigurationError if it cannot listen.
  static absl::StatusOr<std::unique_ptr<Neighbours>> Start(NeighbourOptions options);
  virtual ~Neighbours() = default;
  // Blocks until Reachability::complete is true, for at most `timeout`. Reports to the other tasks
  // which ones this task has reached.
  virtual Reachability Wait(Duration timeout) = 0;
};

}  // namespace muster::preflight
