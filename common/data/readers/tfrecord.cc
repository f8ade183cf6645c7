// Reads TFRecord files of tf.Example: the features that the job's columns name.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "common/base/files/files.h"
#include "common/data/readers/image_tensor.h"
#include "common/data/readers/readers.h"
#include "common/data/records/record_file.h"
#include "proto/tf_example.pb.h"

namespace muster::data {
namespace {

// Returns a tensor of shape [n], or [] for a single value.
template <typename T, typename Values>
at::Tensor TensorOf(const Values& values, at::ScalarType type) {
  std::vector<int64_t> shape;
  if (values.size() != 1) shape.push_back(values.size());
  at::Tensor tensor = at::empty(shape, at::TensorOptions(type));
  if (!values.empty())
    std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

class TfRecordDataset final : public ReadDataset {
 public:
  TfRecordDataset(const DataSplit& split, std::vector<std::shared_ptr<const RecordFile>> files)
      : wanted_(split.columns), image_(split.image), files_(std::move(files)) {
    for (const auto& file : files_) ends_.push_back(size() + file->size());
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  absl::StatusOr<Example> Get(int64_t index, const Context&) const override {
    const size_t f = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    const int64_t record = index - (f == 0 ? 0 : ends_[f - 1]);
    MUSTER_ASSIGN_OR_RETURN(const std::string_view bytes, files_[f]->Record(record));
    tf::Example parsed;
    if (bytes.size() > INT_MAX ||
        !parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return DataError(fmt::format("{} is no tf.Example", NameOf(index)));
    Example example;
    for (const DataColumn& column : wanted_) {
      MUSTER_ASSIGN_OR_RETURN(at::Tensor value, ValueOf(parsed.features(), column, index));
      example.push_back(std::move(value));
    }
    return example;
  }

 private:
  absl::StatusOr<at::Tensor> ValueOf(const tf::Features& features, const DataColumn& column,
                                     int64_t index) const {
    const auto found = features.feature().find(column.source);
    if (found == features.feature().end()) {
      std::vector<std::string> names;
      for (const auto& [name, feature] : features.feature()) names.push_back(name);
      std::sort(names.begin(), names.end());
      return DataError(fmt::format("{} has no feature '{}', which {} names; it has {}",
                                   NameOf(index), column.source, column.key,
                                   fmt::join(names, ", ")));
    }
    const tf::Feature& feature = found->second;
    const auto refuse = [&](std::string_view what) {
      return DataError(fmt::format("Feature '{}' of {} {}", column.source, NameOf(index), what));
    };
    if (!feature.has_bytes_list() && !column.decode.empty())
      return refuse("holds numbers, and decode is for bytes: leave it out");
    switch (feature.kind_case()) {
      case tf::Feature::kFloatList:
        return TensorOf<float>(feature.float_list().value(), at::kFloat);
      case tf::Feature::kInt64List:
        return TensorOf<int64_t>(feature.int64_list().value(), at::kLong);
      case tf::Feature::kBytesList:
        break;
      default:
        return refuse("is empty");
    }
    if (feature.bytes_list().value_size() != 1)
      return refuse(
          fmt::format("holds {} byte strings; 1 is read", feature.bytes_list().value_size()));
    return DecodeBytes(feature.bytes_list().value(0),
                       fmt::format("{}: {}", NameOf(index), column.source), column.decode, image_);
  }

  std::string NameOf(int64_t index) const override {
    const size_t f = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    return fmt::format("'{}', record {}", files_[f]->path(), index - (f == 0 ? 0 : ends_[f - 1]));
  }

  const std::vector<DataColumn> wanted_;
  const ImageOptions image_;
  const std::vector<std::shared_ptr<const RecordFile>> files_;
  std::vector<int64_t> ends_;  // For each file, the number of examples up to its end.
};

}  // namespace

absl::StatusOr<std::vector<std::string>> FilesOfPaths(const DataSplit& split,
                                                      const std::string& folder) {
  std::vector<std::string> files;
  for (size_t i = 0; i < split.paths.size(); ++i) {
    const std::string path = PathFrom(folder, split.paths[i]);
    absl::StatusOr<std::vector<std::string>> found = MatchFiles(path);
    if (!found.ok()) return Annotate(found.status(), split.key + ".path: ");
    if (found->empty())
      return DataError(fmt::format("{}.path: there is no file '{}'", split.key, path));
    files.insert(files.end(), found->begin(), found->end());
  }
  return files;
}

absl::StatusOr<OpenSplit> OpenTfRecord(const DataSplit& split, const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOfPaths(split, folder));
  std::vector<std::shared_ptr<const RecordFile>> files;
  for (const std::string& path : paths) {
    auto file = RecordFile::Open(path);
    if (!file.ok()) return Annotate(file.status(), split.key + ".path: ");
    files.push_back(*std::move(file));
  }
  auto dataset = std::make_shared<TfRecordDataset>(split, std::move(files));
  if (dataset->size() == 0)
    return DataError(fmt::format("{}.path: '{}' holds no records", split.key, paths[0]));
  return ReadDataset::Open(std::move(dataset), split, folder);
}

}  // namespace muster::data
