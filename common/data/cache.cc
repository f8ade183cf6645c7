#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>

#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {
namespace {

// Stores each example when it is first read. If two threads read a missing example at the same
// time, both load it, and the first result is stored.
//
// Get of the input may accept examples that GetBatch refuses, such as a picture of another size,
// which transforms may resize later. The cache therefore loads each example with the function that
// the caller used. If an example was loaded by Get, GetBatch loads it again.
class CacheDataset final : public Dataset {
 public:
  explicit CacheDataset(DatasetPtr input) : input_(std::move(input)) {
    if (input_->size() > 0) examples_.resize(static_cast<size_t>(input_->size()));
  }
  int64_t size() const override { return input_->size(); }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckSized(*input_, "cache"));
    MUSTER_ASSIGN_OR_RETURN(std::vector<Example> found, Find({index}, /*as_batch=*/false, context));
    for (at::Tensor& component : found[0]) component = component.clone();
    return std::move(found[0]);
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckSized(*input_, "cache"));
    if (indices.empty()) return input_->GetBatch(indices, context);
    MUSTER_ASSIGN_OR_RETURN(std::vector<Example> found, Find(indices, /*as_batch=*/true, context));
    return StackExamples(found, indices);
  }

 private:
  struct Kept {
    Example example;  // Empty until it is loaded.
    bool as_batch = false;
  };

  // Returns the stored tensors without a copy. Callers must not write to them.
  absl::StatusOr<std::vector<Example>> Find(const std::vector<int64_t>& indices, bool as_batch,
                                            const Context& context) const {
    std::vector<Example> found(indices.size());
    std::vector<size_t> missing;
    {
      absl::MutexLock lock(&mutex_);
      for (size_t i = 0; i < indices.size(); ++i) {
        const Kept& kept = examples_[indices[i]];
        if (kept.example.empty() || (as_batch && !kept.as_batch)) {
          missing.push_back(i);
        } else {
          found[i] = kept.example;
        }
      }
    }
    if (missing.empty()) return found;
    std::vector<int64_t> wanted;
    for (size_t i : missing) wanted.push_back(indices[i]);
    MUSTER_ASSIGN_OR_RETURN(std::vector<Example> loaded, Load(wanted, as_batch, context));
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < missing.size(); ++i) {
      Kept& kept = examples_[wanted[i]];
      if (kept.example.empty() || (as_batch && !kept.as_batch))
        kept = {std::move(loaded[i]), as_batch};
      found[missing[i]] = kept.example;
    }
    return found;
  }

  absl::StatusOr<std::vector<Example>> Load(const std::vector<int64_t>& wanted, bool as_batch,
                                            const Context& context) const {
    std::vector<Example> loaded;
    if (!as_batch) {
      MUSTER_ASSIGN_OR_RETURN(Example example, input_->Get(wanted[0], context));
      loaded.push_back(std::move(example));
      return loaded;
    }
    MUSTER_ASSIGN_OR_RETURN(Batch batch, input_->GetBatch(wanted, context));
    MUSTER_RETURN_IF_ERROR(
        CheckRows(batch, static_cast<int64_t>(wanted.size()), "The cached dataset"));
    for (size_t i = 0; i < wanted.size(); ++i) {
      Example& example = loaded.emplace_back();
      for (const at::Tensor& component : batch) {
        example.push_back(component.select(0, static_cast<int64_t>(i)));
      }
    }
    return loaded;
  }

  const DatasetPtr input_;
  mutable absl::Mutex mutex_;
  mutable std::vector<Kept> examples_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

DatasetPtr Cache(DatasetPtr input) {
  return std::make_shared<CacheDataset>(NotNull(std::move(input), "Cache"));
}

}  // namespace muster::data
