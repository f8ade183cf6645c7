#include "common/data/readers/image_tensor.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "common/data/batches.h"
#include "common/data/files/damage.h"
#include "common/data/image/image.h"
#include "common/data/readers/transformed.h"
#include "common/data/transforms/picture_steps.h"

namespace muster::data {
namespace {

// Returns the pixels as a tensor [1, channels, height, width] without a copy. The channels of a
// pixel are adjacent.
at::Tensor View(Image image) {
  auto* pixels = new Pixels(std::move(image.pixels));
  return at::from_blob(
      pixels->data(), {1, image.channels, image.height, image.width},
      {image.height * image.width * image.channels, 1, image.width * image.channels,
       image.channels},
      [pixels](void*) { delete pixels; }, at::TensorOptions(at::kByte));
}

at::Tensor Resize(const at::Tensor& picture, int64_t height, int64_t width) {
  if (picture.size(2) == height && picture.size(3) == width) return picture;
  return at::_upsample_bilinear2d_aa(picture, {height, width}, /*align_corners=*/false);
}

absl::StatusOr<at::Tensor> Fit(const at::Tensor& picture, const std::string& name,
                               const ImageOptions& options) {
  if (options.height == 0) return picture;
  if (options.shorter_side == 0) return Resize(picture, options.height, options.width);
  const PictureSize size =
      Resized({.shorter_side = options.shorter_side}, picture.size(2), picture.size(3));
  const std::string wrong = TooManyPixels({picture.size(2), picture.size(3), 0}, size);
  if (!wrong.empty()) return DataError(fmt::format("'{}': shorter_side {}", name, wrong));
  const at::Tensor resized = Resize(picture, size.height, size.width);
  return resized.narrow(2, Margin(resized.size(2), options.height), options.height)
      .narrow(3, Margin(resized.size(3), options.width), options.width);
}

const char* TypeName(at::ScalarType type) {
  return type == at::kByte ? "uint8" : at::isIntegralType(type, true) ? "integers" : "numbers";
}

}  // namespace

absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(Image image, DecodeImage(bytes, name, options.channels));
  try {
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor picture, Fit(View(std::move(image)), name, options));
    return picture.select(0, 0);
  } catch (...) {
    return CaughtException(fmt::format("Resizing '{}'", name));
  }
}

absl::StatusOr<at::Tensor> DecodeBytes(std::string_view bytes, const std::string& name,
                                       const std::string& decode, const ImageOptions& options) {
  if (decode == "image") return DecodeToTensor(bytes, name, options);
  static const std::map<std::string_view, at::ScalarType> types = {
      {"float16", at::kHalf}, {"float32", at::kFloat}, {"float64", at::kDouble},
      {"int8", at::kChar},    {"int16", at::kShort},   {"int32", at::kInt},
      {"int64", at::kLong},   {"uint8", at::kByte}};
  const auto type = types.find(decode);
  if (type == types.end()) {
    return ConfigurationError(fmt::format(
        "{} holds bytes: say by \"decode\" what they are, image or a type such as uint8", name));
  }
  const auto item = static_cast<int64_t>(c10::elementSize(type->second));
  const auto size = static_cast<int64_t>(bytes.size());
  if (size % item != 0) {
    return DataError(fmt::format("{} holds {} bytes, which is no whole number of {} values", name,
                                 size, decode));
  }
  std::vector<int64_t> shape;
  if (size != item) shape.push_back(size / item);
  at::Tensor values = at::empty(shape, at::TensorOptions(type->second));
  if (size > 0) std::memcpy(values.mutable_data_ptr(), bytes.data(), size);
  return values;
}

absl::StatusOr<Example> FirstExample(const Dataset& dataset, const DataSplit& split) {
  absl::StatusOr<Example> first = dataset.Get(0, {});
  const absl::Status damage = first.status();
  if (!split.skip_damaged) return first;
  for (int64_t i = 1; i < dataset.size() && IsDamage(first.status()); ++i)
    first = dataset.Get(i, {});
  if (IsDamage(first.status()))
    return Annotate(damage, "none of the examples is readable; the first one: ");
  return first;
}

absl::StatusOr<OpenSplit> ReadDataset::Open(std::shared_ptr<ReadDataset> dataset,
                                            const DataSplit& split, const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(const Example first, FirstExample(*dataset, split));
  std::vector<TransformedColumn> pictures;
  for (size_t c = 0; c < first.size(); ++c) {
    const DataColumn& column = split.columns[c];
    dataset->columns_.push_back({column.name, first[c].scalar_type(), first[c].sizes().vec()});
    if (column.picture) pictures.push_back({c, c});
  }
  MUSTER_ASSIGN_OR_RETURN(dataset, Transformed(std::move(dataset), split, folder, pictures));
  OpenSplit open;
  open.columns = dataset->columns();
  open.dataset = std::move(dataset);
  return open;
}

absl::StatusOr<Batch> ReadDataset::GetBatch(const std::vector<int64_t>& indices,
                                            const Context& context) const {
  Batch batch;
  for (const Column& column : columns_) {
    std::vector<int64_t> shape = column.shape;
    shape.insert(shape.begin(), static_cast<int64_t>(indices.size()));
    batch.push_back(at::empty(shape, at::TensorOptions(column.type)));
  }
  Example rows(batch.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    for (size_t c = 0; c < rows.size(); ++c) rows[c] = batch[c].select(0, static_cast<int64_t>(i));
    MUSTER_RETURN_IF_ERROR(GetInto(indices[i], context, &rows));
  }
  return batch;
}

absl::Status ReadDataset::GetInto(int64_t index, const Context& context, Example* rows) const {
  MUSTER_ASSIGN_OR_RETURN(const Example example, Get(index, context));
  for (size_t c = 0; c < rows->size(); ++c) {
    MUSTER_RETURN_IF_ERROR(CheckAlike(index, c, example[c]));
    CopyInto(example[c], (*rows)[c]);
  }
  return absl::OkStatus();
}

absl::Status ReadDataset::CheckAlike(int64_t index, size_t c, const at::Tensor& value) const {
  const Column& column = columns_[c];
  if (value.sizes() == at::IntArrayRef(column.shape) && value.scalar_type() == column.type)
    return absl::OkStatus();
  return DataError(
      fmt::format("{} gives {} of shape [{}], and the first example's is {} of shape [{}]: "
                  "the examples of "
                  "a batch must be alike (\"size\" makes pictures so).",
                  NameOf(index), TypeName(value.scalar_type()), fmt::join(value.sizes(), ", "),
                  TypeName(column.type), fmt::join(column.shape, ", ")));
}

void CopyInto(const at::Tensor& value, const at::Tensor& row) {
  if (const auto pixels = RowsOf(value)) {
    CopyPlanes(*pixels, /*flip=*/false, row.mutable_data_ptr<uint8_t>(),
               pixels->height * pixels->width);
  } else {
    row.copy_(value);
  }
}

}  // namespace muster::data
