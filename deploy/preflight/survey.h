// Survey compares the tasks of a cluster and measures the paths between their hosts, before a job
// starts. The chief leads: it asks every task for its facts (facts.h), lets one task after the
// other measure the paths to the others, and sends the result to all. Tasks talk in sessions
// (session.h).
//
// Used by the thread of `muster preflight`. Accept may be called by other threads.
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
  std::map<std::string, std::string> addresses;   // Of all tasks, by name.
  Duration measuring = std::chrono::seconds(60);  // For all paths. 0: none is measured.
  Duration answer = std::chrono::seconds(5);  // Timeout of a question that needs no measurement.
  // Microseconds since 1970. Null: the host's clock.
  std::function<int64_t()> wall_clock;
};

// What the survey found out.
struct SurveyResult {
  std::vector<Check> checks;
  std::vector<PathFacts> paths;
};

class Survey {
 public:
  static std::unique_ptr<Survey> Make(SurveyOptions options);
  // Returns the longest time that Lead or Follow may take.
  static Duration MostTime(Duration measuring);
  virtual ~Survey() = default;

  // Takes a connection that begins with `line`, and serves its session on a thread. Closes it if
  // there are too many sessions.
  virtual void Accept(Fd socket, std::string line) = 0;
  // Sets this task's own facts. Until then, questions for them wait.
  virtual void SetFacts(Facts facts) = 0;

  // The leader's part: compares, measures, and sends the result to all other tasks. REQUIRES:
  // SetFacts was called.
  virtual SurveyResult Lead() = 0;
  // What the leader does if it cannot compare: tells `tasks` the reason.
  virtual void Tell(const std::vector<std::string>& tasks, const std::string& reason) = 0;
  // The part of other tasks: waits for the leader's result, for as long as it may take.
  virtual SurveyResult Follow() = 0;
  // For an evaluator that the cluster does not list, which nobody calls: compares with the leader.
  virtual SurveyResult CompareWithLeader() = 0;
};

}  // namespace muster::preflight
