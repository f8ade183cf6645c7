// Helpers of datasets. They convert examples to batches, and exceptions of user code to Statuses.
// Internal to this folder.
#pragma once

#include <string_view>
#include <vector>

#include "muster/data.h"

namespace muster::data {

// Stacks the examples into a batch. REQUIRES: `examples` is not empty. Returns a ProgramError if
// components, shapes or types differ. `indices` has the index of each example, for messages.
absl::StatusOr<Batch> StackExamples(const std::vector<Example>& examples,
                                    const std::vector<int64_t>& indices);
// Returns a batch of 0 examples with the types and shapes of `example`.
Batch EmptyBatch(const Example& example);
// Returns the only example of `batch`. The tensors are views of the batch.
Example OnlyExample(Batch batch);
// Concatenates batches. REQUIRES: `batches` is not empty.
absl::StatusOr<Batch> ConcatBatches(const std::vector<Batch>& batches);
// Returns a copy of the rows of `source` at `indices`. REQUIRES: `source` is contiguous, and the
// indices are in range.
at::Tensor GatherRows(const at::Tensor& source, const std::vector<int64_t>& indices);
// Returns OK if each tensor of the batch has `rows` rows. `what` names the code that made the
// batch, such as "the map function".
absl::Status CheckRows(const Batch& batch, int64_t rows, std::string_view what);
// Converts the current exception to a ProgramError "<what> failed: <message>", without LibTorch's
// backtraces. Call it only within a catch block.
absl::Status CaughtException(std::string_view what);
// Returns `input`. Throws std::invalid_argument if it is null.
DatasetPtr NotNull(DatasetPtr input, const char* transformation);

}  // namespace muster::data
