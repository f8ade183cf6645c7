// The table of a report: one row for each run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "deploy/report/run.h"

namespace muster::report {

// Returns the table for scripts (`muster report --json`). Fields that a run does not have are null.
// `price_per_hour` is the price of one member for an hour.
OrderedJson TableJson(const std::vector<Run>& runs, std::optional<double> price_per_hour);

// Returns the same table as HTML. Columns that no run has are left out.
std::string TableHtml(const OrderedJson& table);

// Returns the keys of job.json that differ between the runs as an HTML table, "" if there are none.
std::string JobsHtml(const std::vector<Run>& runs);

}  // namespace muster::report
