#include "common/data/job/load_examples.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <numeric>

#include "common/data/batches.h"
#include "common/data/files/damage.h"

namespace muster::data {
namespace {

absl::StatusOr<Batch> LoadIndices(const Dataset& dataset, const std::vector<int64_t>& indices,
                                  int64_t first, const Context& context) {
  c10::AutoGradMode no_gradients(false);
  absl::StatusOr<Batch> batch;
  try {
    batch = dataset.GetBatch(indices, context);
  } catch (...) {
    return CaughtException(
        fmt::format("The dataset, at epoch {}, example {},", context.epoch, first));
  }
  MUSTER_RETURN_IF_ERROR(batch.status());
  MUSTER_RETURN_IF_ERROR(CheckRows(*batch, static_cast<int64_t>(indices.size()), "The dataset"));
  return batch;
}

// Returns a batch of 0 examples. If a damaged example keeps the dataset from making such a batch,
// the first readable example defines the components.
absl::StatusOr<Batch> EmptyOf(const Dataset& dataset, const Context& context) {
  absl::StatusOr<Batch> empty = LoadIndices(dataset, {}, 0, context);
  if (!IsDamage(empty.status())) return empty;
  const absl::Status first = empty.status();
  for (int64_t i = 0; i < dataset.size(); ++i) {
    absl::StatusOr<Batch> one = LoadIndices(dataset, {i}, i, context);
    if (IsDamage(one.status())) continue;
    MUSTER_RETURN_IF_ERROR(one.status());
    for (at::Tensor& component : *one) component = component.narrow(0, 0, 0).clone();
    return one;
  }
  return Annotate(first, "none of the examples is readable; the first one: ");
}

}  // namespace

absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context) {
  std::vector<int64_t> indices(slice.size());
  std::iota(indices.begin(), indices.end(), slice.begin);
  return LoadIndices(dataset, indices, slice.begin, context);
}

absl::StatusOr<PresentExamples> LoadPresentExamples(const Dataset& dataset, Slice slice,
                                                    const Context& context) {
  PresentExamples present;
  absl::StatusOr<Batch> whole = LoadExamples(dataset, slice, context);
  if (!IsDamage(whole.status())) {
    MUSTER_RETURN_IF_ERROR(whole.status());
    present.batch = *std::move(whole);
    present.count = slice.size();
    return present;
  }
  // Tries each example to find the damaged ones, then loads the others as one batch.
  std::vector<int64_t> good;
  for (int64_t i = slice.begin; i < slice.end; ++i) {
    const absl::StatusOr<Batch> one = LoadIndices(dataset, {i}, i, context);
    if (one.ok()) {
      good.push_back(i);
    } else if (IsDamage(one.status())) {
      present.damaged.emplace_back(Message(one.status()));
    } else {
      return one.status();
    }
  }
  present.count = static_cast<int64_t>(good.size());
  if (good.empty()) {
    MUSTER_ASSIGN_OR_RETURN(present.batch, EmptyOf(dataset, context));
    return present;
  }
  MUSTER_ASSIGN_OR_RETURN(present.batch, LoadIndices(dataset, good, good[0], context));
  return present;
}

absl::Status LoadInto(const Dataset& dataset, Slice slice, const Context& context,
                      const PipelineOptions& options, LoadedBatch* loaded) {
  loaded->local_examples = slice.size();
  if (options.skip_damaged) {
    MUSTER_ASSIGN_OR_RETURN(PresentExamples present, LoadPresentExamples(dataset, slice, context));
    loaded->batch = std::move(present.batch);
    loaded->local_examples = present.count;
    loaded->damaged = std::move(present.damaged);
  } else {
    MUSTER_ASSIGN_OR_RETURN(loaded->batch, LoadExamples(dataset, slice, context));
  }
  return options.prepare ? options.prepare(loaded) : absl::OkStatus();
}

}  // namespace muster::data
