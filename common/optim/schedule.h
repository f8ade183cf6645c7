// Learning-rate schedules by name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster {

// A program's own schedules by name.
using NamedSchedules = std::map<std::string, ScheduleFactory>;

// Makes a schedule from a number (constant) or an object. Formulas are those of Keras
// (ExponentialDecay, CosineDecay, CosineDecayRestarts, PolynomialDecay, PiecewiseConstantDecay) and
// torch (StepLR, LinearLR, OneCycleLR). Every length may be given in steps or in epochs
// ("..._epochs"). An optional length defaults to all steps after the warm-up.
//   {"name": "constant", "initial"}
//   {"name": "step", "initial", "gamma": 0.1, "every_steps"}
//   {"name": "piecewise", "boundary_steps": [...], "values": [... one more]}
//   {"name": "exponential", "initial", "decay_rate", "decay_steps", "staircase": false, "floor": 0}
//   {"name": "linear", "initial", "end": 0, "decay_steps": optional}
//   {"name": "polynomial", "initial", "end": 1e-4, "power": 1, "decay_steps": optional,
//    "cycle": false}
//   {"name": "cosine", "initial", "alpha": 0, "decay_steps": optional}
//   {"name": "cosine_restarts", "initial", "first_decay_steps", "t_mul": 2, "m_mul": 1, "alpha": 0}
//   {"name": "inverse_sqrt", "initial", "timescale_steps": the warm-up's, else 10000}
//   {"name": "one_cycle", "max", "total_steps": optional, "pct_start": 0.3, "div_factor": 25,
//    "final_div_factor": 1e4, "anneal_strategy": "cos" | "linear", "three_phase": false}
//   {"name": "ramp_hold_decay", "start": 0, "peak", "floor": 0, "ramp_epochs": 0, "hold_epochs": 0,
//    "decay_rate"}
// An object may also name one of the program's own schedules, with its keys.
//
// Each schedule also takes "warmup_steps": a linear rise from "warmup_from" (default 0) to the
// initial rate. The last two built-in ones refuse it, because they have a rise of their own. Decay
// begins after the warm-up; boundaries count from the start of training. "scale_with_replicas":
// true multiplies the rate by context.num_replicas, including "warmup_from". In "ramp_hold_decay"
// it multiplies only the peak.
absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context,
                                                       const NamedSchedules& of_program = {});

bool IsBuiltInSchedule(const std::string& name);
// Returns whether the schedule's rate depends on the number of replicas.
bool ScalesWithReplicas(const Json& spec);

}  // namespace muster
