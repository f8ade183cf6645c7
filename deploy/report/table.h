// The table of `muster report`, with one row for each run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "deploy/report/run.h"

namespace muster::report {

// Returns the table for scripts (`muster report --json`). Fields that a run does not have are null.
// `price_per_hour` is the price of one member (chief or worker) for an hour.
OrderedJson TableJson(const std::vector<Run>& runs, std::optional<double> price_per_hour);

// Returns `table`, the result of TableJson, as HTML. Leaves out columns that are null for all runs.
std::string TableHtml(const OrderedJson& table);

// Returns an HTML table of the keys of job.json that differ between the runs, or "" if none differ.
std::string JobsHtml(const std::vector<Run>& runs);

}  // namespace muster::report
