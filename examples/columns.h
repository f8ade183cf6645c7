// What messages of these programs say of the columns that a job's data has.
#pragma once

#include <fmt/format.h>
#include <muster/data.h>
#include <muster/json.h>

#include <string>
#include <vector>

namespace muster {

// "x [3, 64, 64], y []"
inline std::string Shown(const std::vector<data::Column>& columns) {
  std::string shown;
  for (const data::Column& column : columns) {
    shown +=
        fmt::format("{}{} {}", shown.empty() ? "" : ", ", column.name, Json(column.shape).dump());
  }
  return shown;
}

}  // namespace muster
