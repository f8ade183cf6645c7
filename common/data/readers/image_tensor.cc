#include "common/data/readers/image_tensor.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "common/data/batches.h"
#include "common/data/byte_source.h"
#include "common/data/image/image.h"

namespace muster::data {
namespace {

// [1, channels, height, width] over the pixels, which lie channel by channel within a pixel.
at::Tensor View(const Image& image) {
  return at::from_blob(const_cast<uint8_t*>(image.pixels.data()),
                       {1, image.channels, image.height, image.width},
                       {image.height * image.width * image.channels, 1,
                        image.width * image.channels, image.channels},
                       at::TensorOptions(at::kByte));
}

at::Tensor Resize(const at::Tensor& picture, int64_t height, int64_t width) {
  if (picture.size(2) == height && picture.size(3) == width) return picture;
  return at::_upsample_bilinear2d_aa(picture, {height, width}, /*align_corners=*/false);
}

// The margin on one side; Python's round, as torchvision computes it.
int64_t Margin(int64_t whole, int64_t part) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(whole - part) / 2));
}

at::Tensor Fit(const at::Tensor& picture, const ImageOptions& options) {
  if (options.height == 0) return picture;
  if (options.shorter_side == 0) return Resize(picture, options.height, options.width);
  const int64_t height = picture.size(2), width = picture.size(3);
  const int64_t side = options.shorter_side;
  const at::Tensor resized = width <= height ? Resize(picture, side * height / width, side)
                                             : Resize(picture, side, side * width / height);
  return resized.narrow(2, Margin(resized.size(2), options.height), options.height)
      .narrow(3, Margin(resized.size(3), options.width), options.width);
}

const char* TypeName(at::ScalarType type) {
  return type == at::kByte ? "uint8" : at::isIntegralType(type, true) ? "integers" : "numbers";
}

}  // namespace

absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const Image image, DecodeImage(bytes, name, options.channels));
  try {
    // A copy: what is returned owns its memory, one channel after the other.
    at::Tensor result =
        at::empty({options.channels, options.height == 0 ? image.height : options.height,
                   options.height == 0 ? image.width : options.width},
                  at::TensorOptions(at::kByte));
    result.copy_(Fit(View(image), options).select(0, 0));
    return result;
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

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto source, OpenBytes(path, /*gzip_allowed=*/false));
  std::string bytes;
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t piece = 64 << 10;; piece = kPiece) {
    const size_t before = bytes.size();
    bytes.resize(before + piece);
    MUSTER_ASSIGN_OR_RETURN(const int64_t got, source->Read(bytes.data() + before, piece));
    bytes.resize(before + got);
    if (got < piece) return bytes;
  }
}

absl::StatusOr<OpenSplit> ReadDataset::Open(std::shared_ptr<ReadDataset> dataset,
                                            const std::vector<DataColumn>& columns) {
  MUSTER_ASSIGN_OR_RETURN(const Example first, dataset->Get(0, {}));
  std::vector<Column>& found = dataset->columns_;
  for (size_t c = 0; c < first.size(); ++c)
    found.push_back({columns[c].name, first[c].scalar_type(), first[c].sizes().vec()});
  OpenSplit open;
  open.columns = found;
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
  for (size_t i = 0; i < indices.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(const Example example, Get(indices[i], context));
    for (size_t c = 0; c < columns_.size(); ++c) {
      at::Tensor row = batch[c].select(0, static_cast<int64_t>(i));
      if (example[c].sizes() != row.sizes() || example[c].scalar_type() != columns_[c].type) {
        return DataError(
            fmt::format("{} gives {} of shape [{}], and the first example's is {} of shape [{}]: "
                        "the examples of "
                        "a batch must be alike (\"size\" makes pictures so).",
                        NameOf(indices[i]), TypeName(example[c].scalar_type()),
                        fmt::join(example[c].sizes(), ", "), TypeName(columns_[c].type),
                        fmt::join(row.sizes(), ", ")));
      }
      row.copy_(example[c]);
    }
  }
  return batch;
}

}  // namespace muster::data
