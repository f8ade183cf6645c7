// Reads a folder that has one subfolder of pictures for each class, as torchvision's ImageFolder
// does. Classes are numbered in the order of their names. Examples have the order of class, folder
// and name.
#include "common/data/readers/image_folder.h"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "common/base/files/files.h"
#include "common/base/hash.h"
#include "common/data/files/byte_source.h"
#include "common/data/image/image.h"
#include "common/data/readers/image_tensor.h"
#include "common/data/readers/readers.h"
#include "common/data/readers/transformed.h"

namespace muster::data {
namespace {

class ImageFolderDataset final : public ReadDataset {
 public:
  using File = ImageFolderFiles::File;
  ImageFolderDataset(std::string folder, std::vector<File> files, const ImageOptions& options)
      : folder_(std::move(folder)), files_(std::move(files)), options_(options) {}

  // Sets the columns. The shape of pictures is that of the job or, if the job has none, that of the
  // first picture.
  absl::Status Look(const DataSplit& split, std::vector<std::string> classes) {
    std::vector<int64_t> shape = {options_.channels, options_.height, options_.width};
    if (options_.height == 0) {
      MUSTER_ASSIGN_OR_RETURN(const Example first, FirstExample(*this, split));
      shape = first[0].sizes().vec();
    }
    columns_ = {{"image", at::kByte, shape}, {"label", at::kLong, {}, std::move(classes)}};
    return absl::OkStatus();
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }

  absl::StatusOr<Example> Get(int64_t index, const Context&) const override {
    const File& file = files_[index];
    const std::string path = PathFrom(folder_, file.path);
    MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path));
    MUSTER_ASSIGN_OR_RETURN(at::Tensor image, DecodeToTensor(bytes, path, options_));
    return Example{std::move(image), at::scalar_tensor(file.label, at::TensorOptions(at::kLong))};
  }

 private:
  absl::Status GetInto(int64_t index, const Context&, Example* rows) const override {
    const File& file = files_[index];
    const std::string path = PathFrom(folder_, file.path);
    MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path));
    const at::Tensor& row = (*rows)[0];
    (*rows)[1].fill_(file.label);
    // Decodes a picture that already has the right size directly into the batch.
    if (options_.channels == 3 && options_.shorter_side == 0) {
      MUSTER_ASSIGN_OR_RETURN(const bool done, DecodePlanes(bytes, path, row.size(1), row.size(2),
                                                            row.mutable_data_ptr<uint8_t>()));
      if (done) return absl::OkStatus();
    }
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor image, DecodeToTensor(bytes, path, options_));
    MUSTER_RETURN_IF_ERROR(CheckAlike(index, 0, image));
    CopyInto(image, row);
    return absl::OkStatus();
  }

  std::string NameOf(int64_t index) const override {
    return fmt::format("'{}'", PathFrom(folder_, files_[index].path));
  }

  const std::string folder_;
  const std::vector<File> files_;
  const ImageOptions options_;
};

// Sorts the files by a hash of their names, so that a part of them has all classes. The order is
// the same on every host and for every split of the folder.
void Mix(std::vector<ImageFolderFiles::File>* files) {
  for (ImageFolderFiles::File& file : *files) file.hash = SplitMix64(Fnv1a(file.path));
  std::sort(files->begin(), files->end(), [](const auto& a, const auto& b) {
    return std::tie(a.hash, a.path) < std::tie(b.hash, b.path);
  });
}

absl::Status OtherKind(const std::string& path) {
  return DataError(fmt::format(
      "'{}' is a picture of a kind that is not read: convert it to JPEG or PNG, or remove it",
      path));
}

}  // namespace

OpenSplit ChooseColumns(const DataSplit& split, DatasetPtr dataset,
                        const std::vector<Column>& components) {
  OpenSplit open;
  std::vector<size_t> chosen;
  bool all = split.columns.size() == components.size();
  for (const DataColumn& wanted : split.columns) {
    size_t c = 0;
    while (components[c].name != wanted.source) ++c;
    all &= c == chosen.size();
    chosen.push_back(c);
    open.columns.push_back(components[c]);
    open.columns.back().name = wanted.name;
  }
  open.dataset = std::move(dataset);
  if (!all) {
    open.dataset = MapBatch(std::move(open.dataset), [chosen](const Batch& batch, const Context&,
                                                              const std::vector<int64_t>&) {
      Batch some;
      for (const size_t c : chosen) some.push_back(batch[c]);
      return some;
    });
  }
  return open;
}

absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path, bool mixed) {
  ImageFolderFiles found;
  MUSTER_ASSIGN_OR_RETURN(found.classes, ListFolders(path));
  if (found.classes.empty()) {
    return DataError(
        fmt::format("'{}' holds no folders: an image folder has one for each class", path));
  }
  for (size_t label = 0; label < found.classes.size(); ++label) {
    const size_t before = found.files.size();
    const std::string of_class = PathFrom(path, found.classes[label]);
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(of_class));
    for (const std::string& name : names) {
      if (HasOtherImageExtension(name)) return OtherKind(PathFrom(of_class, name));
      if (!HasImageExtension(name)) continue;
      found.files.push_back({PathFrom(found.classes[label], name), static_cast<int64_t>(label)});
    }
    if (found.files.size() == before) {
      return DataError(
          fmt::format("the class folder '{}' holds no JPEG or PNG file: add some, or "
                      "remove the folder",
                      of_class));
    }
  }
  if (mixed) Mix(&found.files);
  return found;
}

absl::StatusOr<OpenSplit> OpenImageFolder(const DataSplit& split, const std::string& folder) {
  const std::string key = split.key + ".path: ", path = PathFrom(folder, split.paths[0]);
  auto found = ListImageFolder(path, split.is_part());
  if (!found.ok()) return Annotate(found.status(), key);
  auto dataset = std::make_shared<ImageFolderDataset>(path, std::move(found->files), split.image);
  const absl::Status looked = dataset->Look(split, std::move(found->classes));
  if (!looked.ok()) return Annotate(looked, key);
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<ReadDataset> transformed,
                          Transformed(std::move(dataset), split, folder, {{0, 0}}));
  return ChooseColumns(split, transformed, transformed->columns());
}

// ---- Two folders of unpaired pictures

namespace {

absl::StatusOr<DatasetPtr> OpenSide(const DataSplit& split, const DataColumn& column,
                                    const std::string& folder, uint64_t salt, OpenSplit* open) {
  const std::string path = PathFrom(folder, column.source), key = column.key + ": ";
  const absl::StatusOr<std::vector<std::string>> found = ListFiles(path);
  if (!found.ok()) return Annotate(found.status(), key);
  std::vector<ImageFolderFiles::File> files;
  for (const std::string& name : *found) {
    if (HasOtherImageExtension(name)) return Annotate(OtherKind(PathFrom(path, name)), key);
    if (HasImageExtension(name)) files.push_back({name, 0});
  }
  if (files.empty()) return DataError(fmt::format("{}'{}' holds no JPEG or PNG file", key, path));
  const auto size = static_cast<int64_t>(files.size());
  auto dataset = std::make_shared<ImageFolderDataset>(path, std::move(files), split.image);
  const absl::Status looked = dataset->Look(split, {});
  if (!looked.ok()) return Annotate(looked, key);
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<ReadDataset> transformed,
                          Transformed(std::move(dataset), split, folder, {{0, salt}}));
  open->columns.push_back(transformed->columns()[0]);
  open->columns.back().name = column.name;
  DatasetPtr side =
      MapBatch(std::move(transformed), [](const Batch& batch, const Context&,
                                          const std::vector<int64_t>&) { return Batch{batch[0]}; });
  // If there are transforms, the cache is already in place before them.
  if (split.transforms.empty()) {
    MUSTER_ASSIGN_OR_RETURN(side,
                            Cached(split, folder, column.name, CacheOf::kPart, std::move(side)));
  }
  // Each of the two folders has its own order, so that the pairs change in each epoch.
  if (split.shuffle) side = Shuffle(std::move(side), salt);
  const int64_t times = split.examples == 0 ? 1 : (split.examples + size - 1) / size;
  if (times > 1) side = Repeat(std::move(side), times);
  return split.examples == 0 ? side : Take(std::move(side), split.examples);
}

}  // namespace

absl::StatusOr<OpenSplit> OpenUnpairedImages(const DataSplit& split, const std::string& folder) {
  OpenSplit open;
  std::vector<DatasetPtr> sides;
  for (size_t i = 0; i < split.columns.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(DatasetPtr side,
                            OpenSide(split, split.columns[i], folder, i + 1, &open));
    sides.push_back(std::move(side));
  }
  MUSTER_ASSIGN_OR_RETURN(open.dataset, Zip(std::move(sides)));
  return open;
}

}  // namespace muster::data
