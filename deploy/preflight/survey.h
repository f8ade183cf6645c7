// Survey compares the tasks of a cluster and measures the network paths between their hosts, before
// a job starts. The leader is the task with the chief's role. The leader requests the facts of
// every task (facts.h), requests measurements of the paths, and sends the result to all tasks. All
// requests use sessions (session.h).
//
// The main thread of `muster preflight` calls all functions except Accept. Accept may be called on
// any thread.
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
  PeerSessionOptions session;
  std::string leader;                            // The leader's task, such as "chief:0".
  std::map<std::string, std::string> addresses;  // The addresses of all tasks, keyed by task.
  // The limit for the measurement of all paths. 0: paths are not measured.
  Duration measuring = std::chrono::seconds(60);
  // The timeout of a question that needs no measurement.
  Duration answer = std::chrono::seconds(5);
  // Returns the time in microseconds since 1970. Null: Survey reads the host's clock.
  std::function<int64_t()> wall_clock;
};

struct SurveyResult {
  std::vector<Check> checks;
  std::vector<PathFacts> paths;
};

class Survey {
 public:
  static std::unique_ptr<Survey> Make(SurveyOptions options);
  // Returns the longest time that Lead or Follow takes. `measuring` is SurveyOptions::measuring.
  static Duration MostTime(Duration measuring);
  virtual ~Survey() = default;

  // Accepts a connection whose first line `line` begins a session, and answers the session's
  // questions on a thread of this object. Closes the connection if too many sessions are open.
  virtual void Accept(Fd socket, std::string line) = 0;
  // Sets this task's facts. Other tasks that ask for the facts earlier wait for this call.
  virtual void SetFacts(Facts facts) = 0;

  // Called only by the leader. Compares the tasks, requests the measurements, and sends the result
  // to all other tasks. REQUIRES: SetFacts was called.
  virtual SurveyResult Lead() = 0;
  // Called instead of Lead if the leader cannot compare the tasks. Sends the reason to `tasks`.
  virtual void Cancel(const std::vector<std::string>& tasks, const std::string& reason) = 0;
  // Called by all tasks except the leader. Blocks until the leader's result arrives, for at most
  // MostTime.
  virtual SurveyResult Follow() = 0;
  // Compares this task with the leader. Called only by an evaluator that is not in the cluster's
  // list of tasks. The leader does not compare such an evaluator, because the leader does not know
  // the evaluator's address.
  virtual SurveyResult CompareWithLeader() = 0;
};

}  // namespace muster::preflight
