// What the datasets share: from examples to batches and back, and exceptions of user code as
// Statuses. Internal to this folder.
#pragma once

#include <string_view>
#include <vector>

#include "muster/data.h"

namespace muster::data {

// The examples stacked; REQUIRES: at least one. A ProgramError if their components, shapes or types
// differ; `indices` (as many) name them in the message.
absl::StatusOr<Batch> StackExamples(const std::vector<Example>& examples,
                                    const std::vector<int64_t>& indices);
// A batch of no examples that look like this one.
Batch EmptyBatch(const Example& example);
// The one example of a batch of one; its tensors are views.
Example OnlyExample(Batch batch);
// Batches one after another; REQUIRES: at least one.
absl::StatusOr<Batch> ConcatBatches(const std::vector<Batch>& batches);
// Rows of `source`, copied, in one pass. REQUIRES: contiguous, indices are in range.
at::Tensor GatherRows(const at::Tensor& source, const std::vector<int64_t>& indices);
// OK if each tensor of the batch has `rows` rows; `what` made it ("the map function").
absl::Status CheckRows(const Batch& batch, int64_t rows, std::string_view what);
// Only within a catch block: "<what> failed: <message>" as a ProgramError, LibTorch's backtraces
// left out.
absl::Status CaughtException(std::string_view what);
// Returns `input`; throws std::invalid_argument if it is null.
DatasetPtr NotNull(DatasetPtr input, const char* transformation);

}  // namespace muster::data
