// Transformations with a user's function: Map and MapBatch.
#include <fmt/format.h>

#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {
namespace {

class MapDataset final : public Dataset {
 public:
  MapDataset(DatasetPtr input, MapFunction function)
      : input_(std::move(input)), function_(std::move(function)) {}
  int64_t size() const override { return input_->size(); }
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    return input_->Available(begin, end, context);
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Example example, input_->Get(index, context));
    try {
      return function_(std::move(example), context, index);
    } catch (...) {
      return CaughtException(fmt::format("The map function, at example {},", index));
    }
  }

 private:
  const DatasetPtr input_;
  const MapFunction function_;
};

class MapBatchDataset final : public Dataset {
 public:
  MapBatchDataset(DatasetPtr input, BatchFunction function)
      : input_(std::move(input)), function_(std::move(function)) {}
  int64_t size() const override { return input_->size(); }
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    return input_->Available(begin, end, context);
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Batch batch, GetBatch({index}, context));
    return OnlyExample(std::move(batch));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Batch batch, input_->GetBatch(indices, context));
    try {
      batch = function_(std::move(batch), context, indices);
    } catch (...) {
      return CaughtException(
          indices.empty()
              ? "The map function, at an empty batch,"
              : fmt::format("The map function, at a batch of {} examples from example {},",
                            indices.size(), indices[0]));
    }
    MUSTER_RETURN_IF_ERROR(
        CheckRows(batch, static_cast<int64_t>(indices.size()), "The map function"));
    return batch;
  }

 private:
  const DatasetPtr input_;
  const BatchFunction function_;
};

}  // namespace

DatasetPtr Map(DatasetPtr input, MapFunction function) {
  return std::make_shared<MapDataset>(NotNull(std::move(input), "Map"), std::move(function));
}

DatasetPtr MapBatch(DatasetPtr input, BatchFunction function) {
  return std::make_shared<MapBatchDataset>(NotNull(std::move(input), "MapBatch"),
                                           std::move(function));
}

}  // namespace muster::data
