#include "deploy/tool/data/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/files/files.h"
#include "common/base/json/ordered_json.h"
#include "common/data/files/array_file.h"
#include "common/data/files/byte_source.h"
#include "common/data/readers/image_folder.h"
#include "common/data/readers/image_tensor.h"
#include "deploy/tool/data/shard_writer.h"
#include "proto/tf_example.pb.h"

namespace muster {
namespace {

// The number of examples, and a function that returns the i-th as tf.Example.
struct Source {
  int64_t size = 0;
  std::function<absl::StatusOr<tf::Example>(int64_t)> get;
};

void SetBytes(const std::string& name, std::string bytes, tf::Example* example) {
  tf::Feature& feature = (*example->mutable_features()->mutable_feature())[name];
  feature.mutable_bytes_list()->add_value(std::move(bytes));
}

// Uses the feature names of TF-Slim and most other TFRecord files of images. The files' bytes are
// kept unchanged.
absl::StatusOr<Source> OfImages(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(auto found, data::ListImageFolder(path, /*mixed=*/true));
  Source source;
  source.size = static_cast<int64_t>(found.files.size());
  source.get = [path, found = std::move(found)](int64_t index) -> absl::StatusOr<tf::Example> {
    const auto& file = found.files[index];
    MUSTER_ASSIGN_OR_RETURN(std::string bytes, data::ReadAll(PathFrom(path, file.path)));
    // Finds unreadable images now rather than in training.
    MUSTER_RETURN_IF_ERROR(data::DecodeToTensor(bytes, PathFrom(path, file.path), {}).status());
    tf::Example example;
    SetBytes("image/format", bytes.starts_with("\x89PNG") ? "png" : "jpeg", &example);
    SetBytes("image/encoded", std::move(bytes), &example);
    SetBytes("image/filename", file.path, &example);
    SetBytes("image/class/text", found.classes[file.label], &example);
    tf::Feature& label = (*example.mutable_features()->mutable_feature())["image/class/label"];
    label.mutable_int64_list()->add_value(file.label);
    return example;
  };
  return source;
}

// Stores floating-point values as float_list, bytes as one byte string, and other integers as
// int64_list.
void SetArray(const std::string& name, const at::Tensor& values, tf::Example* example) {
  if (values.scalar_type() == at::kByte) {
    const at::Tensor flat = values.contiguous();
    SetBytes(name, {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}, example);
    return;
  }
  tf::Feature& feature = (*example->mutable_features()->mutable_feature())[name];
  if (at::isFloatingType(values.scalar_type())) {
    const at::Tensor flat = values.to(at::kFloat).contiguous();
    const float* from = flat.const_data_ptr<float>();
    feature.mutable_float_list()->mutable_value()->Add(from, from + flat.numel());
  } else {
    const at::Tensor flat = values.to(at::kLong).contiguous();
    const int64_t* from = flat.const_data_ptr<int64_t>();
    feature.mutable_int64_list()->mutable_value()->Add(from, from + flat.numel());
  }
}

absl::StatusOr<Source> OfArrays(const std::vector<std::string>& columns) {
  std::map<std::string, at::Tensor> arrays;
  Source source;
  for (const std::string& column : columns) {
    const size_t equals = column.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == column.size()) {
      return ConfigurationError(fmt::format("--column must be NAME=FILE.npy, is \"{}\"", column));
    }
    const std::string name = column.substr(0, equals), file = column.substr(equals + 1);
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor array, data::MapNpy(file));
    if (array.dim() == 0) {
      return DataError(fmt::format(
          "'{}' is a single number: its first dimension must be the number of examples", file));
    }
    if (!arrays.empty() && array.size(0) != source.size) {
      return DataError(
          fmt::format("the columns before '{}' have {} examples and it has {}: they "
                      "do not belong together",
                      file, source.size, array.size(0)));
    }
    source.size = array.size(0);
    if (!arrays.emplace(name, array).second)
      return ConfigurationError(fmt::format("--column names {} twice", name));
  }
  source.get = [arrays = std::move(arrays)](int64_t index) -> absl::StatusOr<tf::Example> {
    tf::Example example;
    for (const auto& [name, array] : arrays) SetArray(name, array.select(0, index), &example);
    return example;
  };
  return source;
}

class DataCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand("data", "Write files of examples in another format");
    app->require_subcommand(1);
    CLI::App* tfrecord = app->add_subcommand(
        "tfrecord", "Write TFRecord files of tf.Example, from an image folder or npy files");
    tfrecord
        ->add_option("--images", images_,
                     "A folder with one folder of JPEG and PNG files for each class")
        ->type_name("DIR");
    AddRepeated(
        tfrecord, "--column", &columns_, "COLUMN",
        "NAME=FILE.npy: a feature's name, and the file with its values, examples along the first "
        "dimension");
    tfrecord
        ->add_option("--output", output_,
                     "The file to write, or with --shards the prefix of the file names")
        ->required()
        ->type_name("FILE");
    tfrecord->add_option("--shards", shards_, "How many files (default: 1)")->type_name("N");
    tfrecord->add_option("--compression", compression_, "gzip or zlib (default: none)")
        ->type_name("KIND");
    return app;
  }

  int Run() override {
    const absl::StatusOr<int64_t> written = Write();
    if (!written.ok()) return ReportStatus("data tfrecord", written.status());
    fmt::print("{}{}: {} examples\n", output_,
               shards_ == 1 ? "" : fmt::format("-*-of-{:05}", shards_), *written);
    return 0;
  }

 private:
  absl::StatusOr<int64_t> Write() const {
    static const std::map<std::string, Compression> kinds = {
        {"", Compression::kNone}, {"gzip", Compression::kGzip}, {"zlib", Compression::kZlib}};
    const auto kind = kinds.find(compression_);
    if (kind == kinds.end()) {
      return ConfigurationError(
          fmt::format("--compression {}", UnknownName(compression_, {"gzip", "zlib"})));
    }
    if (images_.empty() == columns_.empty()) {
      return ConfigurationError(
          "give --images, a folder of pictures, or --column, npy files: one of the two");
    }
    MUSTER_ASSIGN_OR_RETURN(const Source source,
                            images_.empty() ? OfArrays(columns_) : OfImages(images_));
    if (shards_ < 1 || shards_ > 99999 || shards_ > source.size) {
      return ConfigurationError(
          fmt::format("--shards is {}, and must be from 1 to 99999 and no "
                      "more than the {} examples",
                      shards_, source.size));
    }
    ShardWriter writer(output_, shards_, source.size, kind->second);
    for (int64_t i = 0; i < source.size; ++i) {
      MUSTER_ASSIGN_OR_RETURN(const tf::Example example, source.get(i));
      MUSTER_RETURN_IF_ERROR(writer.Write(example.SerializeAsString()));
    }
    MUSTER_RETURN_IF_ERROR(writer.Finish());
    return source.size;
  }

  std::string images_, output_, compression_;
  std::vector<std::string> columns_;
  int shards_ = 1;
};

}  // namespace

std::unique_ptr<Command> MakeDataCommand() { return std::make_unique<DataCommand>(); }

}  // namespace muster
