// The part of WorkTable that work_table.cc and work_record.cc share. No other file includes it.
#pragma once

#include "chief/leases/work_table.h"

namespace muster::chief {

inline constexpr int64_t kPartBit = int64_t{1} << 62;

struct WorkTable::Pass {
  struct Part {
    int64_t begin = 0, end = 0;
    int holder = -1;
    bool done = false;
  };
  int split = 0;
  int64_t first_id = 0;
  std::vector<Part> parts;
  int64_t done = 0;
  std::vector<double> sums;
  std::optional<double> loss_weights;
  std::map<std::string, checkpoint::ReportedSum> values;
  proto::Shown shown;
  proto::LeftOut left_out;

  Part* Find(int64_t id) {
    const int64_t index = id - first_id;
    return index >= 0 && index < static_cast<int64_t>(parts.size()) ? &parts[index] : nullptr;
  }
};

}  // namespace muster::chief
