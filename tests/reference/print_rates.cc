// Reads lines {"learning_rate": ..., "steps": n, "steps_per_epoch": e, "total_steps": t,
// "num_replicas": r} and prints, for each, a line with the list of the first n rates.
#include <fmt/format.h>

#include <iostream>
#include <string>

#include "common/optim/schedule.h"
#include "tests/reference/answer_lines.h"

namespace muster {
namespace {

absl::Status PrintRates(const std::string& line) {
  MUSTER_ASSIGN_OR_RETURN(const Json asked, ParseJson(line, "the line"));
  Json spec;
  int64_t steps = 0;
  ScheduleContext context;
  JsonObject object(asked, "");
  object.Read("learning_rate", &spec)
      .Read("steps", &steps)
      .Read("steps_per_epoch", &context.steps_per_epoch)
      .Read("total_steps", &context.total_steps)
      .Read("num_replicas", &context.num_replicas);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<Schedule> schedule, MakeSchedule(spec, context));
  Json rates = Json::array();
  for (int64_t step = 0; step < steps; ++step) rates.push_back(schedule->At(step));
  std::cout << rates.dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main() { return muster::testing::AnswerLines(muster::PrintRates); }
