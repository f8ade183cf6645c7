// Before a job starts, Neighbours tests which tasks of a cluster can reach each other. Each task
// listens on its own port and calls all other tasks. A call is a TCP connection on which each side
// sends one line of JSON: its task, version and cluster, and the tasks that it has reached. Threads
// of this object listen and call. The caller must use the object on a single thread.
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
  std::map<std::string, std::string> addresses;  // The addresses of all tasks, keyed by task.
  std::vector<std::string> listen;               // The addresses to listen on, numeric ip:port.
  std::string version, cluster_digest;
  // The names of the certificate authorities that this task accepts (Identity::Authorities). The
  // first authority signed the task's own certificate. {"plaintext"} if this task accepts every
  // task. Empty if this task cannot load its key or certificate.
  std::vector<std::string> identity;
  Duration between_calls = std::chrono::milliseconds(300);
  Duration call = std::chrono::seconds(2);  // The timeout of one call.
  // Called with each connection whose first line, `line`, begins a session (session.h). May be
  // null. Called on several threads, until the Neighbours object is destroyed.
  std::function<void(Fd socket, std::string line)> on_session;
};

struct Neighbour {
  bool resolved = false;  // True if the neighbour's host name was resolved.
  bool reached = false;   // True if the neighbour has answered a call of this task.
  bool called = false;    // True if the neighbour has called this task.
  std::string why;        // Why `reached` is false.
  std::string version, cluster_digest, host;
  std::vector<std::string> identity;
};

// `a` and `b` are the fields `identity` of two tasks. Returns true if the two tasks accept each
// other's certificates.
bool AcceptEachOther(const std::vector<std::string>& a, const std::vector<std::string>& b);

struct Reachability {
  std::map<std::string, Neighbour> neighbours;  // All tasks except this task.
  // For each task: the tasks that it has reached, as reported in its calls and answers to this
  // task. A task without an entry has not called or answered this task.
  std::map<std::string, std::set<std::string>> reached;
  // True if all tasks have reported that they have reached all others. If this task does not listen
  // (`listen` is empty): true if this task has reached all others.
  bool complete = false;
};

class Neighbours {
 public:
  // Starts to listen and to call. Returns ConfigurationError if listening on an address fails.
  static absl::StatusOr<std::unique_ptr<Neighbours>> Start(NeighbourOptions options);
  virtual ~Neighbours() = default;
  // Blocks until Reachability::complete is true, for at most `timeout`. Also tells the other tasks
  // which tasks this task has reached.
  virtual Reachability Wait(Duration timeout) = 0;
};

}  // namespace muster::preflight
