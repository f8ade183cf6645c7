// Survey compares the tasks of a cluster and measures the paths between their hosts, before a job
// starts. The chief is the leader. It requests the facts of every task (facts.h), requests
// measurements of the paths, and sends the result to all tasks. It communicates in sessions
// (session.h).
//
// Used by the main thread of `muster preflight`. Accept may be called on any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "deploy/preflight/facts.h"
#include "deploy/preflight/session.h"

namespace muster::preflight {

struct SurveyOptions {
  SessionOptions session;
  std::string leader;                             // The chief, "chief:0".
  std::map<std::string, std::string> addresses;   // All tasks, by name.
  Duration measuring = std::chrono::seconds(60);  // Limit for all paths. 0: no measurement.
  Duration answer = std::chrono::seconds(5);  // Timeout of a question that needs no measurement.
  // Microseconds since 1970. Null: the host's clock.
  std::function<int64_t()> wall_clock;
};

// The result of the survey.
struct SurveyResult {
  std::vector<Check> checks;
  std::vector<PathFacts> paths;
};

class Survey {
 public:
  static std::unique_ptr<Survey> Make(SurveyOptions options);
  // Returns the limit of the time for Lead or Follow.
  static Duration MostTime(Duration measuring);
  virtual ~Survey() = default;

  // Serves the session of a connection whose first line is `line`, on a thread of this object.
  // Closes the connection if too many sessions run.
  virtual void Accept(Fd socket, std::string line) = 0;
  // Sets this task's own facts. Until then, questions for them wait.
  virtual void SetFacts(Facts facts) = 0;

  // Called by the leader. Compares, measures, and sends the result to all other tasks. REQUIRES:
  // SetFacts was called.
  virtual SurveyResult Lead() = 0;
  // Called by a leader that cannot compare. Sends the reason to `tasks`.
  virtual void Tell(const std::vector<std::string>& tasks, const std::string& reason) = 0;
  // Called by the other tasks. Blocks until the leader's result arrives, for at most MostTime.
  virtual SurveyResult Follow() = 0;
  // Called by an evaluator that the cluster does not list, and that the leader therefore does not
  // call. Compares this task with the leader.
  virtual SurveyResult CompareWithLeader() = 0;
};

}  // namespace muster::preflight
