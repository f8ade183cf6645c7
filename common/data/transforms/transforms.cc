// Transformations that select, order and combine examples.
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

#include "common/data/batches.h"
#include "common/data/permutation.h"
#include "muster/data.h"

namespace muster::data {
namespace {

// A dataset that has the examples of another dataset, in the same epoch, at other indices.
class IndexedDataset : public Dataset {
 public:
  IndexedDataset(DatasetPtr input, int64_t size) : input_(std::move(input)), size_(size) {}
  int64_t size() const override { return size_; }

 protected:
  const DatasetPtr input_;
  const int64_t size_;
};

class TakeDataset final : public IndexedDataset {
 public:
  // `count` is the limit if the input's size is unknown. -1 means no limit.
  TakeDataset(DatasetPtr input, int64_t size, int64_t count)
      : IndexedDataset(std::move(input), size), count_(count) {}
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    if (size_ >= 0) return Dataset::Available(begin, end, context);
    if (count_ >= 0) end = std::clamp(count_, begin, end);
    if (begin == end) return 0;
    return input_->Available(begin, end, context);
  }
  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    if (count_ >= 0 && index >= count_) return absl::OutOfRangeError("the end of Take");
    return input_->Get(index, context);
  }
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    return input_->GetBatch(indices, context);
  }

 private:
  const int64_t count_;
};

class SkipDataset final : public IndexedDataset {
 public:
  SkipDataset(DatasetPtr input, int64_t size, int64_t count)
      : IndexedDataset(std::move(input), size), count_(count) {}
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    if (size_ >= 0) return Dataset::Available(begin, end, context);
    return input_->Available(begin + count_, end + count_, context);
  }
  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    return input_->Get(index + count_, context);
  }
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    std::vector<int64_t> inner = indices;
    for (int64_t& index : inner) index += count_;
    return input_->GetBatch(inner, context);
  }

 private:
  const int64_t count_;
};

class ShuffleDataset final : public IndexedDataset {
 public:
  ShuffleDataset(DatasetPtr input, uint64_t salt, bool reshuffle)
      : IndexedDataset(input, input->size()), salt_(salt), reshuffle_(reshuffle) {}

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckSized(*this, "shuffle"));
    return input_->Get(PermutationFor(context)(index), context);
  }
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckSized(*this, "shuffle"));
    const Permutation permutation = PermutationFor(context);
    std::vector<int64_t> inner(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) inner[i] = permutation(indices[i]);
    return input_->GetBatch(inner, context);
  }

 private:
  Permutation PermutationFor(const Context& context) const {
    return Permutation(size_, context.seed, salt_, reshuffle_ ? context.epoch : 0);
  }

  const uint64_t salt_;
  const bool reshuffle_;
};

class RepeatDataset final : public IndexedDataset {
 public:
  RepeatDataset(DatasetPtr input, int64_t size, int64_t times)
      : IndexedDataset(std::move(input), size), period_(input_->size()), times_(times) {}

  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    if (size_ >= 0) return Dataset::Available(begin, end, context);
    MUSTER_RETURN_IF_ERROR(CheckPeriod());
    return end - begin;
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckPeriod());
    return input_->Get(index % period_, Inner(context, index / period_));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    if (indices.empty()) return input_->GetBatch(indices, context);
    MUSTER_RETURN_IF_ERROR(CheckPeriod());
    // The keys are repetitions. The values are rows of the batch.
    std::map<int64_t, std::vector<int64_t>> places;
    for (size_t i = 0; i < indices.size(); ++i) {
      places[indices[i] / period_].push_back(static_cast<int64_t>(i));
    }
    std::vector<Batch> parts;
    std::vector<int64_t> row_of(indices.size());
    int64_t row = 0;
    for (const auto& [repetition, group] : places) {
      std::vector<int64_t> inner;
      for (int64_t place : group) {
        inner.push_back(indices[place] % period_);
        row_of[place] = row++;
      }
      MUSTER_ASSIGN_OR_RETURN(Batch part, input_->GetBatch(inner, Inner(context, repetition)));
      parts.push_back(std::move(part));
    }
    MUSTER_ASSIGN_OR_RETURN(Batch batch, ConcatBatches(parts));
    if (std::is_sorted(row_of.begin(), row_of.end())) return batch;
    for (at::Tensor& component : batch) component = GatherRows(component.contiguous(), row_of);
    return batch;
  }

 private:
  absl::Status CheckPeriod() const {
    MUSTER_RETURN_IF_ERROR(CheckSized(*input_, "repeat"));
    if (period_ > 0) return absl::OkStatus();
    return ConfigurationError("A dataset without examples cannot be repeated.");
  }
  Context Inner(const Context& context, int64_t repetition) const {
    // An infinite repetition has no number of repetitions for each outer epoch. The outer epoch is
    // then only added to the inner epoch.
    const int64_t base = times_ < 0 ? context.epoch : context.epoch * times_;
    return {context.seed, base + repetition};
  }

  const int64_t period_, times_;
};

class ZipDataset final : public Dataset {
 public:
  ZipDataset(std::vector<DatasetPtr> inputs, int64_t size)
      : inputs_(std::move(inputs)), size_(size) {}
  int64_t size() const override { return size_; }
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    int64_t least = end - begin;
    for (const DatasetPtr& input : inputs_) {
      MUSTER_ASSIGN_OR_RETURN(const int64_t of_input, input->Available(begin, end, context));
      least = std::min(least, of_input);
    }
    return least;
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    Example result;
    for (const DatasetPtr& input : inputs_) {
      MUSTER_ASSIGN_OR_RETURN(Example part, input->Get(index, context));
      std::move(part.begin(), part.end(), std::back_inserter(result));
    }
    return result;
  }
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    Batch result;
    for (const DatasetPtr& input : inputs_) {
      MUSTER_ASSIGN_OR_RETURN(Batch part, input->GetBatch(indices, context));
      std::move(part.begin(), part.end(), std::back_inserter(result));
    }
    return result;
  }

 private:
  const std::vector<DatasetPtr> inputs_;
  const int64_t size_;
};

// A dataset with batches of the input as examples. GetBatch can stack only full batches.
class BatchDataset final : public IndexedDataset {
 public:
  BatchDataset(DatasetPtr input, int64_t size, int64_t batch_size, bool drop_remainder)
      : IndexedDataset(std::move(input), size),
        batch_size_(batch_size),
        drop_remainder_(drop_remainder) {}
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    if (size_ >= 0) return Dataset::Available(begin, end, context);
    MUSTER_ASSIGN_OR_RETURN(const int64_t examples,
                            input_->Available(begin * batch_size_, end * batch_size_, context));
    return (examples + (drop_remainder_ ? 0 : batch_size_ - 1)) / batch_size_;
  }
  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    const int64_t begin = index * batch_size_;
    MUSTER_ASSIGN_OR_RETURN(const int64_t count,
                            input_->Available(begin, begin + batch_size_, context));
    const int64_t end = begin + count;
    if (count == 0 || (drop_remainder_ && count < batch_size_))
      return absl::OutOfRangeError("the end of BatchExamples");
    std::vector<int64_t> inner;
    for (int64_t i = begin; i < end; ++i) inner.push_back(i);
    return input_->GetBatch(inner, context);
  }

 private:
  const int64_t batch_size_;
  const bool drop_remainder_;
};

}  // namespace

DatasetPtr Take(DatasetPtr input, int64_t count) {
  const int64_t total = NotNull(input, "Take")->size();
  if (total < 0) return std::make_shared<TakeDataset>(std::move(input), total, count);
  if (count < 0) count = total;
  return std::make_shared<TakeDataset>(std::move(input), std::min(count, total), -1);
}

DatasetPtr Skip(DatasetPtr input, int64_t count) {
  const int64_t total = NotNull(input, "Skip")->size();
  if (total >= 0 && (count < 0 || count > total)) count = total;
  const int64_t size = total < 0 ? Dataset::kUnknownSize : total - count;
  return std::make_shared<SkipDataset>(std::move(input), size, count);
}

DatasetPtr Shuffle(DatasetPtr input, uint64_t salt, bool reshuffle_each_iteration) {
  return std::make_shared<ShuffleDataset>(NotNull(std::move(input), "Shuffle"), salt,
                                          reshuffle_each_iteration);
}

DatasetPtr Repeat(DatasetPtr input, int64_t times) {
  const int64_t total = NotNull(input, "Repeat")->size();
  int64_t size = Dataset::kUnknownSize;
  if (total >= 0 && times >= 0 && __builtin_mul_overflow(total, times, &size)) {
    size = std::numeric_limits<int64_t>::max();
  }
  return std::make_shared<RepeatDataset>(std::move(input), size, times);
}

absl::StatusOr<DatasetPtr> Zip(std::vector<DatasetPtr> inputs) {
  if (inputs.empty()) return ProgramError("Zip needs at least one dataset.");
  int64_t size = std::numeric_limits<int64_t>::max();
  for (const DatasetPtr& input : inputs) {
    if (input == nullptr) return ProgramError("Zip needs datasets, and one of them is null.");
    size = std::min(size, input->size());  // An unknown size is -1 and is therefore the minimum.
  }
  return std::make_shared<ZipDataset>(std::move(inputs), size);
}

DatasetPtr BatchExamples(DatasetPtr input, int64_t batch_size, bool drop_remainder) {
  const int64_t total = NotNull(input, "BatchExamples")->size();
  if (batch_size <= 0) {
    throw std::invalid_argument(fmt::format("a batch size must be positive, not {}", batch_size));
  }
  int64_t size = total < 0 ? Dataset::kUnknownSize : total / batch_size;
  if (total >= 0 && !drop_remainder && total % batch_size > 0) ++size;
  return std::make_shared<BatchDataset>(std::move(input), size, batch_size, drop_remainder);
}

}  // namespace muster::data
