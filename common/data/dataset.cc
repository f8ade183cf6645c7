#include <fmt/format.h>

#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {

absl::StatusOr<Batch> Dataset::GetBatch(const std::vector<int64_t>& indices,
                                        const Context& context) const {
  if (indices.empty()) {
    if (size() == 0) {
      return ConfigurationError("A dataset without examples cannot tell what they look like.");
    }
    MUSTER_ASSIGN_OR_RETURN(Example example, Get(0, context));
    return EmptyBatch(example);
  }
  std::vector<Example> examples;
  examples.reserve(indices.size());
  for (int64_t index : indices) {
    MUSTER_ASSIGN_OR_RETURN(Example example, Get(index, context));
    examples.push_back(std::move(example));
  }
  return StackExamples(examples, indices);
}

absl::Status CheckSized(const Dataset& dataset, const std::string& name) {
  if (dataset.size() >= 0) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "The dataset '{}' does not know its size, and training needs it: give it one with "
      "size() (and leave out repeating for ever; epochs do that).",
      name));
}

}  // namespace muster::data
