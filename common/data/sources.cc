// Datasets of tensors in memory, of files and of functions.
#include <fmt/format.h>

#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {
namespace {

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<at::Tensor> components)
      : components_(std::move(components)), size_(components_[0].size(0)) {}

  int64_t size() const override { return size_; }

  absl::StatusOr<Example> Get(int64_t index, const Context&) const override {
    MUSTER_RETURN_IF_ERROR(CheckIndex(index));
    Example example;
    for (const at::Tensor& component : components_) {
      example.push_back(GatherRows(component, {index}).select(0, 0));
    }
    return example;
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context&) const override {
    for (int64_t index : indices) MUSTER_RETURN_IF_ERROR(CheckIndex(index));
    Batch batch;
    for (const at::Tensor& component : components_) {
      batch.push_back(GatherRows(component, indices));
    }
    return batch;
  }

 private:
  absl::Status CheckIndex(int64_t index) const {
    if (index >= 0 && index < size_) return absl::OkStatus();
    return ProgramError(
        fmt::format("Example {} was asked for in a dataset of {} examples.", index, size_));
  }

  const std::vector<at::Tensor> components_;  // All are contiguous.
  const int64_t size_;
};

class FunctionDataset final : public Dataset {
 public:
  using Function = std::function<absl::StatusOr<Example>(int64_t index, const Context&)>;
  FunctionDataset(int64_t size, Function get) : size_(size), get_(std::move(get)) {}

  int64_t size() const override { return size_; }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    try {
      return get_(index, context);
    } catch (...) {
      return CaughtException(fmt::format("The dataset's function, at example {},", index));
    }
  }

 private:
  const int64_t size_;
  const Function get_;
};

}  // namespace

absl::StatusOr<DatasetPtr> FromTensors(std::vector<at::Tensor> components) {
  if (components.empty()) return ProgramError("A dataset from tensors needs at least one tensor.");
  for (size_t c = 0; c < components.size(); ++c) {
    at::Tensor& component = components[c];
    if (!component.defined() || component.dim() == 0) {
      return ProgramError(fmt::format(
          "Component {} of a dataset from tensors has no first dimension to count examples by.",
          c));
    }
    if (component.size(0) != components[0].size(0)) {
      return DataError(fmt::format(
          "The components of a dataset from tensors differ in their number of examples: component "
          "0 has {}, component {} has {}.",
          components[0].size(0), c, component.size(0)));
    }
    component = component.detach().contiguous();
  }
  return std::make_shared<TensorDataset>(std::move(components));
}

DatasetPtr FromFunction(int64_t size,
                        std::function<absl::StatusOr<Example>(int64_t index, const Context&)> get) {
  return std::make_shared<FunctionDataset>(size, std::move(get));
}

absl::StatusOr<DatasetPtr> LoadIdxPair(const std::string& images, const std::string& labels) {
  MUSTER_ASSIGN_OR_RETURN(at::Tensor label, ReadIdx(labels));
  if (label.dim() != 1) {
    return DataError(
        fmt::format("'{}' has {} dimensions, and labels have one.", labels, label.dim()));
  }
  MUSTER_ASSIGN_OR_RETURN(at::Tensor image, ReadIdx(images));
  if (image.size(0) != label.size(0)) {
    return DataError(
        fmt::format("'{}' has {} examples and '{}' has {}: they do not belong together.", images,
                    image.size(0), labels, label.size(0)));
  }
  return FromTensors({std::move(image), std::move(label)});
}

}  // namespace muster::data
