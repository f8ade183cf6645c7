// Helpers of the datasets: conversion between examples and batches, and exceptions of user code as
// Statuses. Internal to this folder.
#pragma once

#include <string_view>
#include <vector>

#include "muster/data.h"

namespace muster::data {

// Stacks the examples. REQUIRES: at least one. Returns a ProgramError if their components, shapes
// or types differ. `indices` has one index for each example, and names it in the message.
absl::StatusOr<Batch> StackExamples(const std::vector<Example>& examples,
                                    const std::vector<int64_t>& indices);
// Returns a batch without examples, with components like those of `example`.
Batch EmptyBatch(const Example& example);
// Returns the example of a batch of one, as views.
Example OnlyExample(Batch batch);
// Concatenates batches. REQUIRES: at least one.
absl::StatusOr<Batch> ConcatBatches(const std::vector<Batch>& batches);
// Copies rows of `source` in one pass. REQUIRES: `source` is contiguous, and the indices are in
// range.
at::Tensor GatherRows(const at::Tensor& source, const std::vector<int64_t>& indices);
// Returns OK if each tensor of the batch has `rows` rows. `what` names the code that made it, such
// as "the map function".
absl::Status CheckRows(const Batch& batch, int64_t rows, std::string_view what);
// Converts the current exception to a ProgramError "<what> failed: <message>", without LibTorch's
// backtraces. Call it only within a catch block.
absl::Status CaughtException(std::string_view what);
// Returns `input`. Throws std::invalid_argument if it is null.
DatasetPtr NotNull(DatasetPtr input, const char* transformation);

}  // namespace muster::data
