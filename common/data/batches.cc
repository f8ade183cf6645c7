#include "common/data/batches.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <stdexcept>

namespace muster::data {
namespace {

std::string ShapeOf(const at::Tensor& tensor) {
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "), toString(tensor.scalar_type()));
}

absl::Status CheckAlike(const Example& first, int64_t first_index, const Example& other,
                        int64_t other_index) {
  if (first.size() != other.size()) {
    return ProgramError(
        fmt::format("Example {} has {} components and example {} has {}: the examples of one batch "
                    "must be alike.",
                    first_index, first.size(), other_index, other.size()));
  }
  for (size_t c = 0; c < first.size(); ++c) {
    if (!first[c].defined() || !other[c].defined()) {
      return ProgramError(fmt::format("Component {} of example {} is an undefined tensor.", c,
                                      first[c].defined() ? other_index : first_index));
    }
    if (first[c].sizes() != other[c].sizes() || first[c].scalar_type() != other[c].scalar_type()) {
      return ProgramError(fmt::format(
          "Component {} of example {} is {} and of example {} is {}: the examples of one batch "
          "must be alike.",
          c, first_index, ShapeOf(first[c]), other_index, ShapeOf(other[c])));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Batch> StackExamples(const std::vector<Example>& examples,
                                    const std::vector<int64_t>& indices) {
  for (size_t i = 0; i < examples.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckAlike(examples[0], indices[0], examples[i], indices[i]));
  }
  try {
    Batch batch;
    std::vector<at::Tensor> column(examples.size());
    for (size_t c = 0; c < examples[0].size(); ++c) {
      for (size_t i = 0; i < examples.size(); ++i) column[i] = examples[i][c];
      batch.push_back(at::stack(column));
    }
    return batch;
  } catch (...) {
    return CaughtException("Stacking the examples of a batch");
  }
}

Batch EmptyBatch(const Example& example) {
  Batch batch;
  for (const at::Tensor& component : example) {
    std::vector<int64_t> shape = component.sizes().vec();
    shape.insert(shape.begin(), 0);
    batch.push_back(at::empty(shape, component.options()));
  }
  return batch;
}

Example OnlyExample(Batch batch) {
  for (at::Tensor& component : batch) component = component.select(0, 0);
  return batch;
}

absl::StatusOr<Batch> ConcatBatches(const std::vector<Batch>& batches) {
  if (batches.size() == 1) return batches[0];
  try {
    Batch result;
    for (size_t c = 0; c < batches[0].size(); ++c) {
      std::vector<at::Tensor> column;
      for (const Batch& batch : batches) column.push_back(batch.at(c));
      result.push_back(at::cat(column));
    }
    return result;
  } catch (...) {
    return CaughtException("Putting the parts of a batch together");
  }
}

at::Tensor GatherRows(const at::Tensor& source, const std::vector<int64_t>& indices) {
  const auto rows = static_cast<int64_t>(indices.size());
  if (!source.device().is_cpu()) {
    at::Tensor index =
        at::from_blob(const_cast<int64_t*>(indices.data()), {rows}, at::TensorOptions(at::kLong));
    return at::index_select(source, 0, index.to(source.device()));
  }
  std::vector<int64_t> shape = source.sizes().vec();
  shape[0] = rows;
  at::Tensor result = at::empty(shape, source.options());
  if (result.numel() == 0) return result;
  // Copies adjacent rows at once.
  const auto row_bytes = static_cast<int64_t>(result.nbytes()) / rows;
  const char* from = static_cast<const char*>(source.const_data_ptr());
  char* to = static_cast<char*>(result.mutable_data_ptr());
  for (int64_t i = 0; i < rows;) {
    int64_t end = i + 1;
    while (end < rows && indices[end] == indices[end - 1] + 1) ++end;
    std::memcpy(to + i * row_bytes, from + indices[i] * row_bytes, (end - i) * row_bytes);
    i = end;
  }
  return result;
}

absl::Status CheckRows(const Batch& batch, int64_t rows, std::string_view what) {
  for (size_t c = 0; c < batch.size(); ++c) {
    if (!batch[c].defined() || batch[c].dim() == 0 || batch[c].size(0) != rows) {
      return ProgramError(fmt::format(
          "{} gave {} as component {} of a batch of {} examples: the first dimension must be {}.",
          what, batch[c].defined() ? ShapeOf(batch[c]) : "an undefined tensor", c, rows, rows));
    }
  }
  return absl::OkStatus();
}

absl::Status CaughtException(std::string_view what) {
  try {
    throw;
  } catch (const c10::Error& error) {
    return ProgramError(fmt::format("{} failed: {}", what, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return ProgramError(fmt::format("{} failed: {}", what, error.what()));
  } catch (...) {
    return ProgramError(fmt::format("{} threw something that is no std::exception.", what));
  }
}

DatasetPtr NotNull(DatasetPtr input, const char* transformation) {
  if (input == nullptr) {
    throw std::invalid_argument(fmt::format("{} needs an input dataset, not null", transformation));
  }
  return input;
}

}  // namespace muster::data
