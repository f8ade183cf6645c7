#include "chief/evaluation/evaluation_rules.h"

#include <fmt/format.h>

#include "common/cluster/verdict.h"

namespace muster::chief {

bool OffersNewest(const EvaluationState& state, int64_t after_step) {
  if (!state.newest || state.settled.contains(*state.newest)) return false;
  return *state.newest > after_step || state.final_announced;
}

std::string WhyLost(PausingTime now, const EvaluatorState& evaluator,
                    const EvaluationRules& rules) {
  if (!evaluator.present) return "";
  if (evaluator.broken_at && now - *evaluator.broken_at >= rules.resume)
    return fmt::format("its connection broke and did not come back within {:.3g} s",
                       Seconds(rules.resume));
  if (now - evaluator.last_heard >= rules.heartbeat)
    return fmt::format("no heartbeat for {:.3g} s", Seconds(now - evaluator.last_heard));
  return "";
}

bool IsVacant(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules) {
  return !evaluator.present || evaluator.broken_at || now - evaluator.last_heard >= rules.suspect;
}

FinalWait DecideFinalWait(PausingTime now, const EvaluationState& state,
                          const EvaluationRules& rules) {
  if (!state.waiting_since || !state.newest || state.settled.contains(*state.newest)) return {true};
  // There was no evaluator, or its loss is already logged.
  if (!state.evaluator.present) return {true};
  if (now - *state.waiting_since >= rules.evaluate)
    return {true, fmt::format("{} did not evaluate the final checkpoint within {:.3g} s "
                              "(timeouts.evaluate): the job ends without its metrics",
                              TaskText(state.evaluator.task), Seconds(rules.evaluate))};
  return {};
}

}  // namespace muster::chief
