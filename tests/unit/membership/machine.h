// A member's state machine with a clock that tests advance.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/membership/state_machine/member_state.h"

namespace muster::membership {

inline MemberRules TestRules() {
  MemberRules rules{.task = "worker:1",
                    .host = "node-b",
                    .chief_task = "chief:0",
                    .chief_address = "node-a:2222",
                    .timeouts = {{.phase = {}}}};
  rules.timeouts.join = std::chrono::seconds(100);
  rules.timeouts.rejoin = std::chrono::seconds(50);
  rules.timeouts.phase[static_cast<int>(Phase::kData)] = std::chrono::seconds(300);
  rules.timeouts.phase[static_cast<int>(Phase::kReduce)] = std::chrono::seconds(660);
  return rules;
}

class Machine {
 public:
  explicit Machine(MemberRules machine_rules = TestRules()) : rules(std::move(machine_rules)) {}

  // Applies the event and returns the actions.
  std::vector<MemberAction> Feed(MemberEvent event) {
    MemberChange change = Apply(rules, now, std::move(state), std::move(event));
    state = std::move(change.state);
    return std::move(change.actions);
  }
  std::vector<MemberAction> After(Duration time, MemberEvent event = Tick{}) {
    now += time;
    return Feed(std::move(event));
  }
  static GenerationOffered Offer(uint64_t generation) {
    return {.roster = std::make_shared<Roster>(Roster{
                .generation = generation, .members = {{.task = "chief:0"}, {.task = "worker:1"}}})};
  }
  static Verdict Failure() {
    return {.code = ExitCode::kProgramFailed, .task = "worker:0", .message = "a bad program"};
  }
  // Moves from the initial state to `stage` by the fewest events. The session is then up, and there
  // is nothing left to report.
  void GoTo(Stage stage) {
    if (stage == Stage::kIdle) {
      Feed(JoinRequested{});
    } else {
      Feed(GenerationRequested{});
    }
    Feed(Tick{});
    Feed(Welcomed{.welcome = {.run_id = "run-a"}, .chief_pid = 17});
    const bool running = stage >= Stage::kRunning && stage != Stage::kEnded;
    if (stage == Stage::kForming || stage == Stage::kFormed || running) Feed(Offer(1));
    if (stage == Stage::kFormed || running) Feed(LinksEstablished{.generation = 1});
    if (running) Feed(GenerationStarted{.generation = 1});
    if (stage == Stage::kExplaining) Feed(CollectiveFailed{.message = "a reset link"});
    if (stage == Stage::kFinished) Feed(LoopFinished{.last_step = 7});
    if (stage == Stage::kOver) Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
    if (stage == Stage::kEnding || stage == Stage::kEnded) Feed(JobEnded{.verdict = Failure()});
    Feed(Tick{});
  }

  MemberRules rules;
  PausingTime now{std::chrono::seconds(1000)};
  MemberState state{now, rules.timeouts.heartbeat};
};

inline std::string_view NameOf(const MemberAction& action) {
  return std::visit([](const auto& a) { return a.kName; }, action);
}
inline std::string_view NameOf(const MemberEvent& event) {
  return std::visit([](const auto& e) { return e.kName; }, event);
}
inline std::vector<std::string> NamesOf(const std::vector<MemberAction>& actions) {
  std::vector<std::string> names;
  for (const MemberAction& action : actions) names.emplace_back(NameOf(action));
  return names;
}
// Returns the first action of this type, null if there is none.
template <typename Action>
const Action* Find(const std::vector<MemberAction>& actions) {
  for (const MemberAction& action : actions)
    if (const auto* found = std::get_if<Action>(&action)) return found;
  return nullptr;
}

}  // namespace muster::membership
