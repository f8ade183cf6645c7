// docs/control_plane.md has the whole state machine in tables: what every event does in every
// stage. These tests make the tables from the code, and compare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <variant>

#include "tests/paths.h"
#include "tests/unit/membership/machine.h"

namespace muster::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;

struct Row {
  std::string name;  // of the event, and what is special about it
  std::function<std::vector<MemberAction>(Machine&)> happen;
};

template <typename Event>
Row Plain(Event event) {
  return {std::string(Event::kName), [event](Machine& m) { return m.Feed(event); }};
}

const std::vector<Row>& StageRows() {
  static const std::vector<Row> rows = {
      Plain(JoinRequested{}),
      Plain(GenerationRequested{.last_step = 5}),
      Plain(LinksEstablished{.generation = 1}),
      Plain(LinksFailed{.generation = 1, .message = "no route"}),
      Plain(PhaseEntered{.phase = Phase::kData, .step = 1}),
      Plain(CollectiveFailed{.message = "a reset link"}),
      Plain(LoopFailed{.message = "NaN"}),
      Plain(FailureNotReported{.failure = "NaN", .why = "no answer"}),
      Plain(LoopFinished{.last_step = 7}),
      Plain(LoopReturned{}),
      Plain(StopReceived{}),
      Plain(Welcomed{}),
      Plain(Refused{.verdict = Machine::Failure()}),
      {"JobEnded, done", [](Machine& m) { return m.Feed(JobEnded{}); }},
      {"JobEnded, a failure",
       [](Machine& m) { return m.Feed(JobEnded{.verdict = Machine::Failure()}); }},
      {"Pulse with a stop", [](Machine& m) { return m.Feed(Pulse{.stop_requested = true}); }},
      Plain(RosterReceived{.line = "1/2 joined"}),
      {"GenerationOffered, a newer one", [](Machine& m) { return m.Feed(Machine::Offer(2)); }},
      Plain(GenerationStarted{.generation = 1}),
      Plain(GenerationAborted{.generation = 1, .reason = "a loss"}),
      Plain(SessionClosed{.why = "connection refused"}),
      Plain(SessionCut{}),
      Plain(RecordsDelivered{}),
      {"Tick after timeouts.resume without a session",
       [](Machine& m) {
         m.Feed(SessionClosed{.why = "connection refused", .retry = seconds(100)});
         return m.After(m.rules.timeouts.resume);
       }},
      {"Tick after timeouts.heartbeat of silence",
       [](Machine& m) { return m.After(m.rules.timeouts.heartbeat); }},
      {"Tick after timeouts.abort",
       [](Machine& m) {
         m.now += m.rules.timeouts.abort;
         m.Feed(Pulse{});
         return m.Feed(Tick{});
       }},
      {"Tick after timeouts.join, or rejoin, without a session",
       [](Machine& m) {
         m.Feed(SessionClosed{.why = "connection refused", .retry = seconds(100)});
         m.rules.timeouts.rejoin = m.rules.timeouts.join;
         m.rules.timeouts.abort = 10 * m.rules.timeouts.join;
         m.After(m.rules.timeouts.resume);
         return m.After(m.rules.timeouts.join);
       }},
  };
  return rows;
}

// "SendReport": with the next Tick.
std::string ActionsText(std::vector<MemberAction> actions, bool changed) {
  std::string text;
  const auto add = [&text](std::string_view name) {
    text += text.empty() ? "" : ", ";
    text += name;
  };
  for (const MemberAction& action : actions) add(NameOf(action));
  if (changed && Find<SendReport>(actions) == nullptr) add("SendReport");
  return text;
}

// One line for each thing that the event does, with the stages in which it does it.
template <typename Start, typename Name>
std::string LinesOf(const Row& row, int stages, const Start& start, const Name& name) {
  std::vector<std::pair<std::string, std::string>> lines;  // what, and the stages
  for (int i = 0; i < stages; ++i) {
    Machine m;
    start(i, &m);
    const std::string before = name(m);
    std::vector<MemberAction> actions = row.happen(m);
    const std::string after = name(m);
    const std::string text = ActionsText(std::move(actions), m.state.changed);
    const std::string what =
        (after == before ? "" : after) + " | " + (text.empty() && after == before ? "" : text);
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const auto& one) { return one.first == what; });
    if (line == lines.end()) line = lines.insert(lines.end(), {what, ""});
    line->second += (line->second.empty() ? "" : ", ") + before;
  }
  if (lines.size() == 1) lines.front().second = "all";
  std::string text, event = row.name;
  for (const auto& [what, in] : lines) {
    if (what == " | " && lines.size() > 1) continue;  // it does nothing there
    text += "| " + event + " | " + in + " | " + what + " |\n";
    event.clear();
  }
  return text;
}

std::string StageTable() {
  std::string table = "| Event | In | To | Actions |\n|---|---|---|---|\n";
  for (const Row& row : StageRows())
    table += LinesOf(
        row, kNumStages, [](int stage, Machine* m) { m->GoTo(static_cast<Stage>(stage)); },
        [](const Machine& m) { return std::string(StageName(m.state.stage)); });
  return table;
}

// The session's stages, of a member that looks for its chief.
void GoToSession(int stage, Machine* m) {
  switch (static_cast<SessionStage>(stage)) {
    case SessionStage::kNone:
      return;
    case SessionStage::kConnecting:
      m->Feed(JoinRequested{});
      m->Feed(Tick{});
      return;
    case SessionStage::kUp:
      return m->GoTo(Stage::kIdle);
    case SessionStage::kClosing:
      GoToSession(static_cast<int>(SessionStage::kConnecting), m);
      m->After(m->rules.timeouts.heartbeat);
      return;
    case SessionStage::kBroken:
      GoToSession(static_cast<int>(SessionStage::kConnecting), m);
      m->Feed(SessionClosed{.why = "connection refused", .retry = seconds(1)});
      m->Feed(Tick{});
      return;
  }
}

std::string SessionTable() {
  const std::vector<Row> rows = {
      {"JoinRequested, then Tick",
       [](Machine& m) {
         m.Feed(JoinRequested{});
         return m.Feed(Tick{});
       }},
      {"Tick after the back-off", [](Machine& m) { return m.After(milliseconds(1100)); }},
      Plain(Welcomed{}),
      Plain(SessionClosed{.why = "connection refused"}),
      Plain(SessionCut{}),
      {"Tick after timeouts.heartbeat of silence",
       [](Machine& m) {
         return m.After(m.rules.timeouts.heartbeat - milliseconds(1)), m.After(milliseconds(1));
       }},
  };
  std::string table = "| Event | In | To | Actions |\n|---|---|---|---|\n";
  for (const Row& row : rows)
    table += LinesOf(row, kNumSessionStages, GoToSession, [](const Machine& m) {
      return std::string(StageName(m.state.session.stage));
    });
  return table;
}

// Returns the text of the page between "<!-- table: NAME -->" and "<!-- end -->".
std::string OnThePage(const std::string& name) {
  std::ifstream file(testing_support::SourceDir() + "/docs/control_plane.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string begin = "<!-- table: " + name + " -->\n";
  const size_t from = page.find(begin);
  const size_t to = page.find("<!-- end -->", from);
  if (from == std::string::npos || to == std::string::npos) return "no table " + name;
  return page.substr(from + begin.size(), to - from - begin.size());
}

TEST(MemberTable, TheStagesAreAsOnThePage) {
  EXPECT_EQ(OnThePage("a member's stages"), StageTable())
      << "docs/control_plane.md should have this:\n"
      << StageTable();
}

TEST(MemberTable, TheSessionIsAsOnThePage) {
  EXPECT_EQ(OnThePage("a member's session"), SessionTable())
      << "docs/control_plane.md should have this:\n"
      << SessionTable();
}

// The names that `text` lacks.
template <typename... Kind>
std::vector<std::string> MissingIn(const std::string& text, const std::variant<Kind...>*) {
  std::vector<std::string> missing;
  for (const std::string_view name : {Kind::kName...})
    if (text.find(name) == std::string::npos) missing.emplace_back(name);
  return missing;
}

TEST(MemberTable, HasEveryEventAndEveryAction) {
  EXPECT_THAT(MissingIn(StageTable(), static_cast<const MemberEvent*>(nullptr)), IsEmpty());
  EXPECT_THAT(MissingIn(StageTable() + SessionTable(), static_cast<const MemberAction*>(nullptr)),
              IsEmpty());
}

TEST(MemberTable, ThePageSaysWhatEachStageIs) {
  std::ifstream file(testing_support::SourceDir() + "/docs/control_plane.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const std::string_view stage : kStageNames)
    EXPECT_NE(page.find("\n| `" + std::string(stage) + "` | "), std::string::npos) << stage;
  for (const std::string_view stage : kSessionStageNames)
    EXPECT_NE(page.find("\n| `" + std::string(stage) + "` | "), std::string::npos) << stage;
}

TEST(MemberTable, TheShortestWayLeadsToEachStage) {
  for (int stage = 0; stage < kNumStages; ++stage) {
    Machine m;
    m.GoTo(static_cast<Stage>(stage));
    EXPECT_EQ(StageName(m.state.stage), kStageNames[stage]);
    EXPECT_FALSE(m.state.changed);
  }
  for (int stage = 0; stage < kNumSessionStages; ++stage) {
    Machine m;
    GoToSession(stage, &m);
    EXPECT_EQ(StageName(m.state.session.stage), kSessionStageNames[stage]);
  }
}

}  // namespace
}  // namespace muster::membership
