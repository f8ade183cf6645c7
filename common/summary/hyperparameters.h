// Data for TensorBoard's plugin "hparams": the hyperparameters and the outcome of a run. The plugin
// shows a table with one row for each run.
//
// Muster does not write the plugin's "experiment" summary, which lists the columns of the table.
// TensorBoard uses only the first such summary, so columns of other runs would be missing. Without
// an "experiment" summary, TensorBoard collects the columns from all runs.
#pragma once

#include <map>
#include <string>

#include "muster/json.h"

namespace muster::summary {

inline constexpr char kHyperparametersPlugin[] = "hparams";
inline constexpr char kSessionStartTag[] = "_hparams_/session_start_info";
inline constexpr char kSessionEndTag[] = "_hparams_/session_end_info";

// Returns at most 200 values of the resolved job, keyed by paths such as "optimizer.momentum".
// Omits null values, and keys without influence on the result, such as folders, addresses and
// timeouts. Lists are returned as JSON texts, and so are objects at paths of three keys.
std::map<std::string, Json> Hyperparameters(const Json& job);

// These functions return the contents of the tags kSessionStartTag and kSessionEndTag, for
// EventWriter::PluginData. `time` is in seconds since 1970.
std::string SessionStart(const std::map<std::string, Json>& values, double time);
std::string SessionEnd(bool success, double time);

}  // namespace muster::summary
