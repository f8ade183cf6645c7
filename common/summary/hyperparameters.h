// What TensorBoard's plugin "hparams" reads of a run: the values that people choose, from the
// resolved job, and how the run ended.
//
// There is no summary of an "experiment", which lists the columns of the table: TensorBoard takes
// the first one that it finds, and would hide what other runs have besides. Without one it collects
// the columns from all runs.
#pragma once

#include <map>
#include <string>

#include "muster/json.h"

namespace muster::summary {

inline constexpr char kHyperparametersPlugin[] = "hparams";
inline constexpr char kSessionStartTag[] = "_hparams_/session_start_info";
inline constexpr char kSessionEndTag[] = "_hparams_/session_end_info";

// Returns the job's values by their paths, such as "optimizer.momentum". Leaves out what has no
// influence on the result, such as paths, addresses and timeouts, and what is not set. Lists and
// what is beyond the third level become JSON texts. At most 200 values.
std::map<std::string, Json> Hyperparameters(const Json& job);

// Return the content of the plugin's data. Times are in seconds since 1970.
std::string SessionStart(const std::map<std::string, Json>& values, double time);
std::string SessionEnd(bool success, double time);

}  // namespace muster::summary
