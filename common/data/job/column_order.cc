#include "common/data/job/job_data.h"

namespace muster::data {

void NoteColumnOrder(OrderedJson* job) {
  if (!job->is_object() || !job->contains("data") || !(*job)["data"].is_object()) return;
  for (auto& [split, value] : (*job)["data"].items()) {
    if (!value.is_object() || !value.contains("columns")) continue;
    if (value.contains("order") && !value["order"].is_null()) continue;
    if (!value["columns"].is_object()) continue;
    OrderedJson order = OrderedJson::array();
    for (const auto& [name, column] : value["columns"].items()) {
      if (!column.is_null()) order.push_back(name);
    }
    value["order"] = std::move(order);
  }
}

}  // namespace muster::data
