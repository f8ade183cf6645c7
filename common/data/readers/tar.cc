// Reads tar shards in webdataset's layout. Adjacent members with the same path up to the first dot
// of the file name form one sample. The rest of the name is the extension.
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "absl/strings/ascii.h"
#include "common/data/files/array_file.h"
#include "common/data/readers/image_tensor.h"
#include "common/data/readers/readers.h"
#include "common/data/records/tar_file.h"

namespace muster::data {
namespace {

struct Sample {
  std::string key;                                      // For example "train-0001.tar: 00017".
  std::map<std::string, const TarFile::Member*> files;  // The keys are the extensions.
};

std::vector<std::string> Alternatives(const std::string& source) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= source.size();) {
    const size_t end = std::min(source.find(';', at), source.size());
    names.push_back(absl::AsciiStrToLower(source.substr(at, end - at)));
    at = end + 1;
  }
  return names;
}

absl::StatusOr<at::Tensor> ValueOf(const std::string& extension, std::string_view bytes,
                                   const std::string& name, const DataColumn& column,
                                   const ImageOptions& image) {
  const std::string last = extension.substr(extension.rfind('.') + 1);
  if (!column.decode.empty()) return DecodeBytes(bytes, name, column.decode, image);
  if (last == "jpg" || last == "jpeg" || last == "png") return DecodeToTensor(bytes, name, image);
  if (last == "npy") {
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor array, NpyInMemory(bytes, nullptr, name));
    return array.clone();
  }
  if (last == "cls" || last == "cls2" || last == "index" || last == "inx" || last == "id") {
    while (!bytes.empty() && std::isspace(static_cast<unsigned char>(bytes.back())))
      bytes.remove_suffix(1);
    int64_t label = 0;
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), label);
    if (error != std::errc() || end != bytes.data() + bytes.size())
      return DataError(fmt::format("'{}' holds no integer, which .{} files do", name, extension));
    return at::scalar_tensor(label, at::TensorOptions(at::kLong));
  }
  return ConfigurationError(
      fmt::format("{}: what '{}' holds is not known: say it by \"decode\", image or a type such as "
                  "uint8",
                  column.key, name));
}

class TarDataset final : public ReadDataset {
 public:
  TarDataset(const DataSplit& split, std::vector<std::shared_ptr<const TarFile>> files,
             std::vector<Sample> samples)
      : wanted_(split.columns),
        image_(split.image),
        files_(std::move(files)),
        samples_(std::move(samples)) {
    for (const DataColumn& column : wanted_) names_.push_back(Alternatives(column.source));
  }

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }

  absl::StatusOr<Example> Get(int64_t index, const Context&) const override {
    const Sample& sample = samples_[index];
    Example example;
    for (size_t c = 0; c < wanted_.size(); ++c) {
      auto found = sample.files.end();
      for (const std::string& name : names_[c]) {
        if (found == sample.files.end()) found = sample.files.find(name);
      }
      if (found == sample.files.end()) {
        std::vector<std::string> there;
        for (const auto& [extension, file] : sample.files) there.push_back(extension);
        return DataError(fmt::format("'{}' has no {}, which {} names; it has {}", sample.key,
                                     fmt::join(names_[c], " or "), wanted_[c].key,
                                     fmt::join(there, ", ")));
      }
      const auto& [extension, file] = *found;
      MUSTER_ASSIGN_OR_RETURN(at::Tensor value, ValueOf(extension, file->bytes,
                                                        fmt::format("{}.{}", sample.key, extension),
                                                        wanted_[c], image_));
      example.push_back(std::move(value));
    }
    return example;
  }

 private:
  std::string NameOf(int64_t index) const override {
    return fmt::format("'{}'", samples_[index].key);
  }

  const std::vector<DataColumn> wanted_;
  const ImageOptions image_;
  const std::vector<std::shared_ptr<const TarFile>> files_;
  const std::vector<Sample> samples_;
  // The extensions of each column. The first extension that a sample has is used.
  std::vector<std::vector<std::string>> names_;
};

absl::Status AddSamples(const TarFile& file, std::vector<Sample>* samples) {
  std::string previous;
  for (const TarFile::Member& member : file.members()) {
    const size_t slash = member.name.rfind('/');
    const size_t base = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = member.name.find('.', base);
    // As webdataset does, skips names without an extension and names that begin with "." or "__".
    if (dot == std::string::npos || dot == base || member.name.substr(base, 2) == "__") continue;
    const std::string key = member.name.substr(0, dot);
    const std::string extension = absl::AsciiStrToLower(member.name.substr(dot + 1));
    if (samples->empty() || key != previous || samples->back().files.empty()) {
      samples->push_back({fmt::format("{}: {}", file.path(), key), {}});
      previous = key;
    }
    if (!samples->back().files.emplace(extension, &member).second) {
      return DataError(fmt::format("'{}' holds '{}' twice", file.path(), member.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenSplit> OpenTar(const DataSplit& split, const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOfPaths(split, folder));
  std::vector<std::shared_ptr<const TarFile>> files;
  std::vector<Sample> samples;
  for (const std::string& path : paths) {
    auto file = TarFile::Open(path);
    if (!file.ok()) return Annotate(file.status(), split.key + ".path: ");
    // A sample does not continue in the next file.
    std::vector<Sample> of_file;
    const absl::Status added = AddSamples(**file, &of_file);
    if (!added.ok()) return Annotate(added, split.key + ".path: ");
    samples.insert(samples.end(), std::make_move_iterator(of_file.begin()),
                   std::make_move_iterator(of_file.end()));
    files.push_back(*std::move(file));
  }
  if (samples.empty())
    return DataError(fmt::format("{}.path: '{}' holds no samples", split.key, paths[0]));
  auto dataset = std::make_shared<TarDataset>(split, std::move(files), std::move(samples));
  return ReadDataset::Open(std::move(dataset), split, folder);
}

}  // namespace muster::data
