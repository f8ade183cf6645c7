#include "deploy/preflight/survey.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/fan_out.h"
#include "common/base/wait.h"
#include "common/cluster/verdict.h"
#include "deploy/preflight/judgement.h"
#include "deploy/preflight/path.h"
#include "deploy/preflight/session_threads.h"
#include "deploy/preflight/sockets.h"

namespace muster::preflight {
namespace {

using std::chrono::seconds;

constexpr size_t kAtOnce = 64;  // Limit of concurrent measurements.
constexpr int kPings = 8;
// Upper bound of the leader's time in addition to SurveyOptions::measuring: for sessions, facts,
// the measurement that runs at the end of this time, and the report.
constexpr Duration kLeaderSlack = seconds(45);
// A follower's timeout for the leader's first question, from the start of Follow.
constexpr Duration kLeaderComes = seconds(20);
// Limit of questions in a session, in addition to those for each path.
constexpr size_t kMaxQuestions = 400;

int64_t HostClock() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Json Question(const char* name) { return {{"ask", name}}; }
Json Error(std::string_view text) { return {{"error", text}}; }

class SurveyImpl final : public Survey {
 public:
  explicit SurveyImpl(SurveyOptions options) : options_(std::move(options)) {
    if (!options_.wall_clock) options_.wall_clock = HostClock;
  }
  ~SurveyImpl() override {
    {
      absl::MutexLock lock(&mu_);
      ended_ = true;
      changed_.SignalAll();
    }
    threads_.Join();
  }

  void Accept(Fd socket, std::string line) override;
  void SetFacts(Facts facts) override;
  SurveyResult Lead() override;
  void Cancel(const std::vector<std::string>& tasks, const std::string& reason) override;
  SurveyResult Follow() override;
  SurveyResult CompareWithLeader() override;

 private:
  // The leader's data about another task.
  struct Other {
    std::string task;
    std::unique_ptr<PeerSession> session;
    absl::Status status;
    Facts facts;
    ClockOffset clock;
  };

  // The answering side.
  void Serve(PeerSession& session);
  Json Answer(PeerSession& session, const Json& question, std::optional<PathReceiver>* receiver);
  Json Receive(std::optional<PathReceiver>* receiver);
  Json TakeReport(const Json& question);
  absl::StatusOr<Facts> WaitForFacts();

  // The asking side.
  absl::StatusOr<ClockOffset> CompareClocks(PeerSession& session) const;
  absl::Status Ask(Other* other);
  PathFacts MeasurePath(const std::string& to);
  absl::Status MeasurePath(PeerSession& session, PathFacts* path);
  PathFacts LetMeasure(const Path& path, std::vector<Other>& others);
  std::vector<PathFacts> MeasureAll(std::vector<Other>& others, std::vector<Check>* checks);
  void MeasureSlowOnesAgain(std::vector<Other>& others, MonotonicTime end,
                            std::vector<PathFacts>* measured);
  absl::Status Report(PeerSession& session, const std::vector<Check>& checks,
                      const std::vector<PathFacts>& paths);
  static Check NotCompared(const Other& other);
  static std::vector<Check> ResultFor(const Other& other, const Facts& own,
                                      const SurveyResult& result);
  template <typename Call>
  static void ForEach(std::vector<Other>& others, const Call& call) {
    FanOut(others.size(), others.size(), [&](size_t i) {
      call(&others[i]);
      return absl::OkStatus();  // Failures are kept in Other::status.
    }).IgnoreError();
  }

  SurveyOptions options_;
  std::atomic<bool> ended_ = false;
  SessionThreads threads_;
  std::atomic<int> receiving_ = 0;  // Sessions with a PathReceiver.

  absl::Mutex mu_;
  CondVar changed_;
  std::optional<Facts> facts_ ABSL_GUARDED_BY(mu_);
  std::optional<SurveyResult> report_ ABSL_GUARDED_BY(mu_);
  bool leader_came_ ABSL_GUARDED_BY(mu_) = false, leader_left_ ABSL_GUARDED_BY(mu_) = false;
};

Check SurveyImpl::NotCompared(const Other& other) {
  return {.name = TaskText(other.task),
          .ok = false,
          .what = fmt::format("cannot be compared: {}", Message(other.status)),
          .fix = "see its output",
          .configuration = false};
}

// Returns the checks that `other` prints. Leaves out its own checks, which it prints itself, and
// adds those of the leader.
std::vector<Check> SurveyImpl::ResultFor(const Other& other, const Facts& own,
                                         const SurveyResult& result) {
  std::vector<Check> checks;
  for (Check check : own.checks) {
    check.name = fmt::format("{}, {}", TaskText(own.task), check.name);
    checks.push_back(std::move(check));
  }
  const std::string prefix = TaskText(other.task) + ", ";
  for (const Check& check : result.checks) {
    const bool of_its_own = std::ranges::any_of(other.facts.checks, [&](const Check& one) {
      return check.name == prefix + one.name && check.what == one.what;
    });
    if (!of_its_own) checks.push_back(check);
  }
  return checks;
}

// ---- The answering side.

void SurveyImpl::Accept(Fd socket, std::string line) {
  threads_.Start([this, socket = std::make_shared<Fd>(std::move(socket)), line] {
    auto session =
        PeerSession::Accept(options_.session, std::move(*socket), line, Clock::now() + seconds(2));
    if (session.ok()) Serve(**session);
  });
}

void SurveyImpl::Serve(PeerSession& session) {
  const MonotonicTime end = Clock::now() + options_.measuring + 2 * kLeaderSlack;
  std::optional<PathReceiver> receiver;
  bool compares = false;  // The leader asked for the facts here.
  const size_t most = kMaxQuestions + 2 * options_.addresses.size();
  for (size_t questions = 0; questions < most && !ended_ && Clock::now() < end;) {
    const MonotonicTime wake = Clock::now() + std::chrono::milliseconds(100);
    if (receiver && !session.Buffered()) receiver->Serve(session.fd(), std::min(wake, end));
    if (!session.Buffered() && !WaitFor(session.fd(), POLLIN, wake)) continue;
    const absl::StatusOr<Json> question = session.Receive(Clock::now() + seconds(2));
    if (!question.ok()) break;
    ++questions;
    if (*question == Question("facts") && session.peer() == options_.leader) {
      compares = true;
      absl::MutexLock lock(&mu_);
      leader_came_ = true;
      changed_.SignalAll();
    }
    if (!session.Send(Answer(session, *question, &receiver), Clock::now() + seconds(2)).ok()) break;
  }
  if (receiver) --receiving_;
  if (!compares) return;
  absl::MutexLock lock(&mu_);
  leader_left_ = true;
  changed_.SignalAll();
}

Json SurveyImpl::Answer(PeerSession& session, const Json& question,
                        std::optional<PathReceiver>* receiver) {
  const std::string ask = question.is_object() ? question.value("ask", Json()).dump() : "";
  const bool leads = session.peer() == options_.leader;
  if (ask == "\"clock\"") return {{"microseconds", options_.wall_clock()}};
  if (ask == "\"receive\"") return Receive(receiver);
  if (ask == "\"received\"" && *receiver)
    return {{"bytes", (*receiver)->received().bytes}, {"seconds", (*receiver)->received().seconds}};
  if (ask == "\"facts\"") {
    const absl::StatusOr<Facts> facts = WaitForFacts();
    return facts.ok() ? ToJson(*facts) : Error(Message(facts.status()));
  }
  if (ask == "\"report\"" && leads) return TakeReport(question);
  if (ask == "\"measure\"" && leads) {
    const Json to = question.value("to", Json());
    if (to.is_string() && options_.addresses.contains(to.get<std::string>()))
      return ToJson(MeasurePath(to.get<std::string>()));
  }
  return Error("this task does not answer that question");
}

// Opens a receiver for a measurement. Refuses a third one, because the leader lets at most one task
// at a time measure the path to this task.
Json SurveyImpl::Receive(std::optional<PathReceiver>* receiver) {
  const absl::StatusOr<Facts> facts = WaitForFacts();
  if (!facts.ok()) return Error(Message(facts.status()));
  if (!*receiver && ++receiving_ > 2) {
    --receiving_;
    return Error("it is measured by another task");
  }
  const bool had = receiver->has_value();
  auto opened = PathReceiver::Open(facts->data_address);
  if (!opened.ok()) {
    if (!had) --receiving_;
    return Error(Message(opened.status()));
  }
  receiver->emplace(*std::move(opened));
  return ToJson((*receiver)->ports());
}

Json SurveyImpl::TakeReport(const Json& question) {
  SurveyResult result;
  auto checks = ChecksFromJson(question.value("checks", Json()));
  if (!checks.ok()) return Error("the report cannot be read");
  result.checks = *std::move(checks);
  for (const Json& item : question.value("paths", Json::array()))
    if (auto path = PathFactsFromJson(item); path.ok()) result.paths.push_back(*std::move(path));
  absl::MutexLock lock(&mu_);
  report_ = std::move(result);
  changed_.SignalAll();
  return Json::object();
}

void SurveyImpl::SetFacts(Facts facts) {
  absl::MutexLock lock(&mu_);
  facts_ = std::move(facts);
  changed_.SignalAll();
}

absl::StatusOr<Facts> SurveyImpl::WaitForFacts() {
  const MonotonicTime until = Clock::now() + options_.answer;
  absl::MutexLock lock(&mu_);
  while (!facts_ && !ended_)
    if (changed_.WaitUntil(&mu_, until)) break;
  if (!facts_) return DeadlinePassed("it has not met all other tasks yet");
  return *facts_;
}

SurveyResult SurveyImpl::Follow() {
  const MonotonicTime start = Clock::now();
  absl::MutexLock lock(&mu_);
  Duration limit = kLeaderComes;
  while (!report_ && !leader_left_) {
    if (leader_came_) limit = MostTime(options_.measuring);
    if (Clock::now() - start >= limit) break;
    changed_.WaitUntil(&mu_, start + limit);
  }
  if (report_) return *report_;
  const std::string what =
      leader_left_ ? "has sent no result before its end"
                   : fmt::format("has {} within {:g} s",
                                 leader_came_ ? "sent no result" : "asked nothing", Seconds(limit));
  return {.checks = {{.name = "comparison",
                      .ok = false,
                      .what = fmt::format("{} {}", TaskText(options_.leader), what),
                      .fix = "see its output",
                      .configuration = false}}};
}

// ---- The asking side.

absl::StatusOr<ClockOffset> SurveyImpl::CompareClocks(PeerSession& session) const {
  const MonotonicTime until = Clock::now() + options_.answer;
  ClockOffset best;
  for (int i = 0; i < kPings; ++i) {
    const MonotonicTime start = Clock::now();
    const int64_t before = options_.wall_clock();
    MUSTER_ASSIGN_OR_RETURN(const Json answer, session.Ask(Question("clock"), until));
    const double round_trip = Seconds(Clock::now() - start);
    const Json there = answer.value("microseconds", Json());
    if (!there.is_number_integer()) return PeerLost("its answer has no time");
    if (i > 0 && round_trip >= best.round_trip) continue;
    best = {.seconds = 1e-6 * static_cast<double>(there.get<int64_t>() - before) - round_trip / 2,
            .uncertainty = round_trip / 2,
            .round_trip = round_trip};
  }
  return best;
}

absl::Status SurveyImpl::Ask(Other* other) {
  const MonotonicTime until = Clock::now() + options_.answer;
  MUSTER_ASSIGN_OR_RETURN(
      other->session,
      PeerSession::Dial(options_.session, other->task, options_.addresses.at(other->task), until));
  MUSTER_ASSIGN_OR_RETURN(
      const Json facts, other->session->Ask(Question("facts"), Clock::now() + 2 * options_.answer));
  MUSTER_ASSIGN_OR_RETURN(other->facts, FactsFromJson(facts));
  other->facts.task = other->task;
  MUSTER_ASSIGN_OR_RETURN(other->clock, CompareClocks(*other->session));
  return absl::OkStatus();
}

PathFacts SurveyImpl::MeasurePath(const std::string& to) {
  PathFacts path{.from = options_.session.self, .to = to};
  const auto session = PeerSession::Dial(options_.session, to, options_.addresses.at(to),
                                         Clock::now() + options_.answer);
  const absl::Status status = session.ok() ? MeasurePath(**session, &path) : session.status();
  if (!status.ok()) path.problem = Message(status);
  return path;
}

absl::Status SurveyImpl::MeasurePath(PeerSession& session, PathFacts* path) {
  const MonotonicTime until = Clock::now() + kPathLimit;
  MUSTER_ASSIGN_OR_RETURN(const Facts own, WaitForFacts());
  MUSTER_ASSIGN_OR_RETURN(const ClockOffset clock, CompareClocks(session));
  path->round_trip = clock.round_trip;
  MUSTER_ASSIGN_OR_RETURN(const Json answer, session.Ask(Question("receive"), until));
  MUSTER_ASSIGN_OR_RETURN(const ProbePorts ports, ProbePortsFromJson(answer));
  // The MTU is worth most of the time. The transfer needs less than a second.
  MUSTER_ASSIGN_OR_RETURN(
      const PathMtu mtu,
      ProbeMtu(own.data_address, ports, FromSeconds(clock.round_trip), until - kPathLimit / 3));
  path->own_mtu = mtu.own;
  path->mtu = mtu.found;
  path->reported_mtu = mtu.reported;
  MUSTER_RETURN_IF_ERROR(SendTransfer(own.data_address, ports, mtu, until));
  MUSTER_ASSIGN_OR_RETURN(const Json received, session.Ask(Question("received"), until));
  Received count;
  JsonObject object(received, "received");
  object.Read("bytes", &count.bytes).Read("seconds", &count.seconds);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  path->bits_per_second = count.BitsPerSecond();
  return absl::OkStatus();
}

PathFacts SurveyImpl::LetMeasure(const Path& path, std::vector<Other>& others) {
  if (path.from == options_.session.self) return MeasurePath(path.to);
  const auto from = std::ranges::find(others, path.from, &Other::task);
  absl::StatusOr<Json> answer = from->session->Ask({{"ask", "measure"}, {"to", path.to}},
                                                   Clock::now() + kPathLimit + 2 * options_.answer);
  absl::StatusOr<PathFacts> facts =
      answer.ok() ? PathFactsFromJson(*answer) : absl::StatusOr<PathFacts>(answer.status());
  if (!facts.ok()) {
    PathFacts failed{.from = path.from, .to = path.to};
    failed.problem = Message(facts.status());
    return failed;
  }
  facts->from = path.from;
  facts->to = path.to;
  return *std::move(facts);
}

// Measures all paths, one after another. If the time is too short for that, measures the paths of a
// round (Rounds) at the same time.
std::vector<PathFacts> SurveyImpl::MeasureAll(std::vector<Other>& others,
                                              std::vector<Check>* checks) {
  std::vector<Facts> tasks = {*WaitForFacts()};
  for (const Other& other : others)
    if (other.status.ok()) tasks.push_back(other.facts);
  std::vector<std::vector<Path>> rounds = Rounds(tasks);
  size_t count = 0;
  for (const auto& round : rounds) count += round.size();
  const Duration each = 2 * kTransfer;  // Includes the session and the probes of a healthy path.
  const bool in_turn = static_cast<int64_t>(count) * each <= options_.measuring;
  const MonotonicTime end = Clock::now() + options_.measuring;
  std::vector<PathFacts> measured;
  for (const auto& round : rounds) {
    std::vector<PathFacts> found(round.size());
    std::vector<char> done(round.size());
    const auto measure = [&](size_t i) {
      if (Clock::now() >= end) return absl::OkStatus();
      found[i] = LetMeasure(round[i], others);
      done[i] = 1;
      return absl::OkStatus();
    };
    FanOut(round.size(), in_turn ? 1 : kAtOnce, measure).IgnoreError();  // None returns an error.
    for (size_t i = 0; i < round.size(); ++i)
      if (done[i] != 0) measured.push_back(std::move(found[i]));
  }
  MeasureSlowOnesAgain(others, end, &measured);
  if (measured.size() < count)
    checks->push_back({.name = "paths",
                       .what = fmt::format("{} of {} measured within {:g} s", measured.size(),
                                           count, Seconds(options_.measuring)),
                       .fix = count > 0 && options_.measuring > Duration::zero()
                                  ? "give more time with --measure"
                                  : "",
                       .warning = options_.measuring > Duration::zero()});
  return measured;
}

// Measures slow paths a second time and keeps the better result, because other traffic may have
// slowed the first measurement.
void SurveyImpl::MeasureSlowOnesAgain(std::vector<Other>& others, MonotonicTime end,
                                      std::vector<PathFacts>* measured) {
  const double usual = UsualRate(*measured);
  for (PathFacts& path : *measured) {
    if (!path.problem.empty() || path.bits_per_second >= kSlowShare * usual) continue;
    if (Clock::now() >= end) return;
    PathFacts again = LetMeasure({path.from, path.to}, others);
    if (again.problem.empty() && again.bits_per_second > path.bits_per_second)
      path = std::move(again);
  }
}

SurveyResult SurveyImpl::Lead() {
  std::vector<Other> others;
  for (const auto& [task, address] : options_.addresses)
    if (task != options_.session.self) others.push_back({.task = task});
  ForEach(others, [this](Other* other) { other->status = Ask(other); });
  SurveyResult result;
  const Facts own = *WaitForFacts();
  for (const Other& other : others) {
    if (!other.status.ok()) {
      result.checks.push_back(NotCompared(other));
      continue;
    }
    for (Check& check : CompareFacts(own, other.facts, other.clock))
      result.checks.push_back(std::move(check));
  }
  result.paths = MeasureAll(others, &result.checks);
  for (Check& check : JudgePaths(result.paths)) result.checks.push_back(std::move(check));
  ForEach(others, [&](Other* other) {
    if (other->status.ok())
      other->status = Report(*other->session, ResultFor(*other, own, result), result.paths);
  });
  return result;
}

void SurveyImpl::Cancel(const std::vector<std::string>& tasks, const std::string& reason) {
  std::vector<Other> others;
  for (const std::string& task : tasks) others.push_back({.task = task});
  const Check check{
      .name = "comparison",
      .ok = false,
      .what = fmt::format("{} made no comparison: {}", TaskText(options_.session.self), reason),
      .fix = "see its output",
      .configuration = false};
  ForEach(others, [&](Other* other) {
    auto session = PeerSession::Dial(options_.session, other->task,
                                     options_.addresses.at(other->task), Clock::now() + seconds(2));
    // A task that has ended does not need the report.
    if (session.ok()) Report(**session, {check}, {}).IgnoreError();
  });
}

absl::Status SurveyImpl::Report(PeerSession& session, const std::vector<Check>& checks,
                                const std::vector<PathFacts>& paths) {
  Json list = Json::array();
  for (const PathFacts& path : paths) list.push_back(ToJson(path));
  return session
      .Ask({{"ask", "report"}, {"checks", ToJson(checks)}, {"paths", list}},
           Clock::now() + options_.answer)
      .status();
}

SurveyResult SurveyImpl::CompareWithLeader() {
  Other leader{.task = options_.leader};
  leader.status = Ask(&leader);
  if (!leader.status.ok()) {
    // The leader does not wait for tasks that the cluster does not list.
    Check check = NotCompared(leader);
    check.ok = check.warning = true;
    check.fix = "start this task's preflight before the others'";
    return {.checks = {check}};
  }
  return {.checks = CompareFacts(leader.facts, *WaitForFacts(),
                                 {.seconds = -leader.clock.seconds,
                                  .uncertainty = leader.clock.uncertainty,
                                  .round_trip = leader.clock.round_trip})};
}

}  // namespace

Duration Survey::MostTime(Duration measuring) { return measuring + kLeaderSlack; }

std::unique_ptr<Survey> Survey::Make(SurveyOptions options) {
  return std::make_unique<SurveyImpl>(std::move(options));
}

}  // namespace muster::preflight
