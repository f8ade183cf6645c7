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

// Makes a schedule from JSON: a number is a constant rate, and an object has one of the forms
// below. The formulas are those of Keras (ExponentialDecay, CosineDecay, CosineDecayRestarts,
// PolynomialDecay, PiecewiseConstantDecay) and torch (StepLR, LinearLR, OneCycleLR). A length in
// steps, such as "decay_steps", may be given in epochs instead, as "decay_epochs". An optional
// length defaults to all steps after the warm-up. In these forms, a key with a value is optional,
// and the value is its default.
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
// "name" may also be that of a schedule in `of_program`, which reads its own keys.
//
// Each schedule also takes "warmup_steps": a linear rise from "warmup_from" (default 0) to the
// initial rate. "one_cycle" and "ramp_hold_decay" refuse a warm-up, because they begin with a rise.
// Decay begins after the warm-up. Boundaries count from the start of training.
// "scale_with_replicas": true multiplies the rate and "warmup_from" by context.num_replicas. In
// "ramp_hold_decay" it multiplies only the peak.
absl::StatusOr<std::unique_ptr<Schedule>> MakeSchedule(const Json& spec,
                                                       const ScheduleContext& context,
                                                       const NamedSchedules& of_program = {});

bool IsBuiltInSchedule(const std::string& name);
// Returns true if the schedule's rate depends on the number of replicas.
bool ScalesWithReplicas(const Json& spec);

}  // namespace muster
