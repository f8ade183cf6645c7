#include "common/data/readers/transformed.h"

#include <fmt/format.h>

#include <optional>

#include "common/data/batches.h"
#include "common/data/readers/readers.h"
#include "common/data/transforms/picture_steps.h"

namespace muster::data {
namespace {

class TransformedDataset final : public ReadDataset {
 public:
  // `input` is `read`, or the cache of `read`.
  TransformedDataset(DatasetPtr input, std::shared_ptr<ReadDataset> read, const DataSplit& split,
                     const std::vector<TransformedColumn>& pictures)
      : input_(std::move(input)),
        read_(std::move(read)),
        key_(split.key),
        steps_(split.transforms) {
    columns_ = read_->columns();
    pictures_.resize(columns_.size());
    for (const TransformedColumn& picture : pictures) pictures_[picture.component] = picture.salt;
  }

  // Sets the columns after the transforms. The sizes do not depend on random numbers.
  absl::Status Look(const std::vector<Transform>& transforms) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!pictures_[c]) continue;
      std::vector<int64_t>& shape = columns_[c].shape;
      if (columns_[c].type != at::kByte || shape.size() != 3 || (shape[0] != 1 && shape[0] != 3))
        return NoPicture(0, c);
      // If the transforms do not determine the size, the first picture does.
      PictureSize size;
      (void)FindTooLarge(transforms, &size);
      if (size.height == 0) {
        size = {shape[1], shape[2], 0};
        if (const auto wrong = FindTooLarge(transforms, &size)) return Refused(0, *wrong);
      }
      shape = {shape[0], size.height, size.width};
      columns_[c].type = steps_.type();
    }
    return absl::OkStatus();
  }

  int64_t size() const override { return input_->size(); }
  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    return input_->Available(begin, end, context);
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Example example, Before(index, context));
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!pictures_[c]) continue;
      at::Tensor out;
      MUSTER_RETURN_IF_ERROR(Apply(index, context, c, example[c], &out));
      example[c] = std::move(out);
    }
    return example;
  }

  std::string NameOf(int64_t index) const override { return read_->NameOf(index); }

 private:
  // Returns an example of the input. A ConfigurationError comes from the cache, so its message gets
  // the key of the cache.
  absl::StatusOr<Example> Before(int64_t index, const Context& context) const {
    absl::StatusOr<Example> example = input_->Get(index, context);
    if (example.ok() || ExitCodeOf(example.status()) != ExitCode::kConfiguration) return example;
    return Annotate(example.status(), fmt::format("{}.cache: {}: ", key_, NameOf(index)));
  }

  absl::Status GetInto(int64_t index, const Context& context, Example* rows) const override {
    MUSTER_ASSIGN_OR_RETURN(const Example example, Before(index, context));
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!pictures_[c]) {
        MUSTER_RETURN_IF_ERROR(CheckAlike(index, c, example[c]));
        CopyInto(example[c], (*rows)[c]);
        continue;
      }
      at::Tensor out = (*rows)[c];
      MUSTER_RETURN_IF_ERROR(Apply(index, context, c, example[c], &out));
      if (!out.is_same((*rows)[c])) MUSTER_RETURN_IF_ERROR(CheckAlike(index, c, out));
    }
    return absl::OkStatus();
  }

  // Writes the result into *out if type and shape match.
  absl::Status Apply(int64_t index, const Context& context, size_t c, const at::Tensor& picture,
                     at::Tensor* out) const {
    if (picture.scalar_type() != at::kByte || picture.dim() != 3 ||
        picture.size(0) != columns_[c].shape[0]) {
      return NoPicture(index, c);
    }
    const RandomNumbers random(context, index, *pictures_[c]);
    try {
      const auto wrong = steps_.Apply(picture, random, out);
      return wrong ? Refused(index, *wrong) : absl::OkStatus();
    } catch (...) {
      return CaughtException(fmt::format("Transforming {}", NameOf(index)));
    }
  }

  absl::Status NoPicture(int64_t index, size_t c) const {
    return DataError(fmt::format("{}.transforms are for pictures, and {} is none in column '{}'",
                                 key_, NameOf(index), columns_[c].name));
  }
  absl::Status Refused(int64_t index, const WrongStep& wrong) const {
    return DataError(fmt::format("{}.transforms[{}].{}, for {}, {}", key_, wrong.step, wrong.key,
                                 NameOf(index), wrong.what));
  }

  const DatasetPtr input_;
  const std::shared_ptr<ReadDataset> read_;
  const std::string key_;
  const PictureSteps steps_;
  // For each component that is a picture, the salt of its random numbers.
  std::vector<std::optional<uint64_t>> pictures_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<ReadDataset>> Transformed(
    std::shared_ptr<ReadDataset> dataset, const DataSplit& split, const std::string& folder,
    const std::vector<TransformedColumn>& pictures) {
  if (split.transforms.empty()) return dataset;
  // Transformed pictures differ in each epoch, so the cache stores pictures before the transforms.
  std::string key = "pictures";
  for (const TransformedColumn& picture : pictures) key += fmt::format(" {}", picture.salt);
  MUSTER_ASSIGN_OR_RETURN(DatasetPtr input, Cached(split, folder, key, CacheOf::kAll, dataset));
  auto transformed =
      std::make_shared<TransformedDataset>(std::move(input), std::move(dataset), split, pictures);
  MUSTER_RETURN_IF_ERROR(transformed->Look(split.transforms));
  return transformed;
}

}  // namespace muster::data
