// Learning-rate schedules by name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "muster/json.h"
#include "muster/schedule.h"

namespace muster {

// The schedules that a program registers, by name.
using NamedSchedules = std::map<std::string, ScheduleFactory>;

// Makes a schedule from JSON. A number is a constant rate. An object has one of the forms below.
// The formulas are from Keras (ExponentialDecay, CosineDecay, CosineDecayRestarts, PolynomialDecay,
// PiecewiseConstantDecay) and torch (StepLR, LinearLR, OneCycleLR).
//
// In the forms, a key without a value is required. A key with a value is optional, and the value is
// its default. A key with the value "optional" is a length. If this key is absent, the schedule
// covers all steps after the warm-up. Each key of a length in steps, such as "decay_steps", has a
// counterpart in epochs, such as "decay_epochs".
//   {"name": "constant", "initial"}
//   {"name": "step", "initial", "gamma": 0.1, "every_steps"}
//   {"name": "piecewise", "boundary_steps": [...], "values": [... one more]}
//   {"name": "exponential", "initial", "decay_rate", "decay_steps", "staircase": false, "floor": 0}
//   {"name": "linear", "initial", "end": 0, "decay_steps": optional}
//   {"name": "polynomial", "initial", "end": 1e-4, "power": 1, "decay_steps": optional,
//    "cycle": false}
//   {"name": "cosine", "initial", "alpha": 0, "decay_steps": optional}
//   {"name": "cosine_restarts", "initial", "first_decay_steps", "t_mul": 2, "m_mul": 1, "alpha": 0}
//   {"name": "inverse_sqrt", "initial", "timescale_steps": the length of the warm-up, or 10000}
//   {"name": "one_cycle", "max", "total_steps": optional, "pct_start": 0.3, "div_factor": 25,
//    "final_div_factor": 1e4, "anneal_strategy": "cos" | "linear", "three_phase": false}
//   {"name": "ramp_hold_decay", "start": 0, "peak", "floor": 0, "ramp_epochs": 0, "hold_epochs": 0,
//    "decay_rate"}
// "name" may also name a schedule in `of_program`. That schedule reads its own keys.
//
// Each form has the optional keys "warmup_steps" and "warmup_from" (default 0). During the warm-up,
// the rate rises linearly from "warmup_from" to the initial rate. "one_cycle" and "ramp_hold_decay"
// begin with a rise and accept no warm-up. Lengths of decays count from the end of the warm-up.
// "boundary_steps" count from the start of training.
//
// If the optional key "scale_with_replicas" is true, the rate and "warmup_from" are multiplied by
// context.num_replicas. In "ramp_hold_decay", only "peak" is multiplied.
absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context,
                                                       const NamedSchedules& of_program = {});

bool IsBuiltInSchedule(const std::string& name);
// Returns true if the schedule's rate depends on the number of replicas.
bool ScalesWithReplicas(const Json& spec);

}  // namespace muster
