// Who of a cluster reaches whom, before a job is started: every task listens on its own port and
// calls all others, with one line of JSON each way that tells the task, its version, its cluster
// and whom it has reached so far. All methods are for one thread; threads of its own do the work.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::preflight {

struct NeighbourOptions {
  std::string self;                              // "worker:1"
  std::map<std::string, std::string> addresses;  // of all tasks, by name
  std::vector<std::string> listen;               // numeric ip:port, of this host
  std::string version, cluster_digest;
  // Whose certificates this task accepts, its own authority first (Identity::Authorities).
  // "plaintext" where it accepts everybody; empty where it has nothing to start with.
  std::vector<std::string> identity;
  Duration between_calls = std::chrono::milliseconds(300);
  Duration call = std::chrono::seconds(2);  // one call takes no longer
};

struct Neighbour {
  bool resolved = false;  // its name leads to an address
  bool reached = false;   // it answered a call of this task
  bool called = false;    // it called this task
  std::string why;        // not reached
  std::string version, cluster_digest, host;
  std::vector<std::string> identity;
};

// Whether two tasks take each other's certificates, as far as names tell.
bool AcceptEachOther(const std::vector<std::string>& a, const std::vector<std::string>& b);

struct Found {
  std::map<std::string, Neighbour> neighbours;  // all tasks but this one
  // By task: whom it has reached, as far as it has told. Nothing is known of a task that is absent.
  std::map<std::string, std::set<std::string>> reached;
  // Each has reached each, and this task knows.
  bool complete = false;
};

class Neighbours {
 public:
  // A ConfigurationError where it cannot listen.
  static absl::StatusOr<std::unique_ptr<Neighbours>> Start(NeighbourOptions options);
  virtual ~Neighbours() = default;
  // Until complete, or `timeout` has passed. The others are told whom this task has reached.
  virtual Found Wait(Duration timeout) = 0;
};

}  // namespace muster::preflight
