// Describes the columns of a job's data for error messages.
#pragma once

#include <fmt/format.h>
#include <muster/data.h>
#include <muster/json.h>

#include <string>
#include <vector>

namespace muster {

// Returns the names and shapes of columns, such as "x [3, 64, 64], y []".
inline std::string Shown(const std::vector<data::Column>& columns) {
  std::string shown;
  for (const data::Column& column : columns) {
    shown +=
        fmt::format("{}{} {}", shown.empty() ? "" : ", ", column.name, Json(column.shape).dump());
  }
  return shown;
}

}  // namespace muster
