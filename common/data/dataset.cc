#include <fmt/format.h>

#include <algorithm>

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

absl::StatusOr<int64_t> Dataset::Available(int64_t begin, int64_t end,
                                           const Context& context) const {
  if (size() >= 0) return std::clamp<int64_t>(size() - begin, 0, end - begin);
  // Usually all examples exist. Otherwise, a binary search finds the first missing example.
  int64_t first = begin, last = end;  // The first missing example is in [first, last].
  for (int64_t probe = end - 1; first < last; probe = first + (last - first) / 2) {
    const absl::StatusOr<Example> example = Get(probe, context);
    if (example.ok()) {
      first = probe + 1;
    } else if (absl::IsOutOfRange(example.status())) {
      last = probe;
    } else {
      return example.status();
    }
  }
  return first - begin;
}

absl::Status CheckSized(const Dataset& dataset, const std::string& name) {
  if (dataset.size() >= 0) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "The dataset '{}' does not know its size, and that is needed here: give it one with "
      "size() (and leave out repeating for ever; epochs do that).",
      name));
}

}  // namespace muster::data
