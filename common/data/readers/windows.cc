// Windows of a file of tokens, which is mapped: of bytes (text), or of numbers of 16 or 32 bits.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>

#include "common/base/files.h"
#include "common/data/batches.h"
#include "common/data/byte_source.h"
#include "common/data/readers/readers.h"
#include "muster/data.h"

namespace muster::data {
namespace {

template <typename T>
void Widen(const char* from, int64_t count, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<int64_t>(token);
  }
}

class WindowDataset final : public Dataset {
 public:
  WindowDataset(std::shared_ptr<const MappedFile> file, WindowOptions options, int64_t item)
      : file_(std::move(file)), options_(std::move(options)), item_(item) {
    const int64_t tokens = static_cast<int64_t>(file_->bytes().size()) / item_;
    const int64_t needed = options_.length + (options_.targets ? 1 : 0);
    size_ = tokens < needed ? 0 : (tokens - needed) / options_.stride + 1;
  }
  int64_t size() const override { return size_; }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Batch batch, GetBatch({index}, context));
    return OnlyExample(std::move(batch));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context&) const override {
    Batch batch;
    for (int64_t shift = 0; shift <= (options_.targets ? 1 : 0); ++shift) {
      batch.push_back(at::empty({static_cast<int64_t>(indices.size()), options_.length},
                                at::TensorOptions(at::kLong)));
      auto* to = batch.back().mutable_data_ptr<int64_t>();
      for (const int64_t index : indices) {
        const char* from = file_->bytes().data() + (index * options_.stride + shift) * item_;
        if (item_ == 1) Widen<uint8_t>(from, options_.length, to);
        if (item_ == 2) Widen<uint16_t>(from, options_.length, to);
        if (item_ == 4) Widen<uint32_t>(from, options_.length, to);
        to += options_.length;
      }
    }
    return batch;
  }

 private:
  const std::shared_ptr<const MappedFile> file_;
  const WindowOptions options_;
  const int64_t item_;
  int64_t size_ = 0;
};

}  // namespace

absl::StatusOr<OpenSplit> OpenWindows(const DataSplit& split, const std::string& folder) {
  const WindowOptions& options = split.windows;
  const std::string path = PathFrom(folder, split.paths[0]), key = split.key + ".path: ";
  const int64_t item = options.dtype == "uint16" ? 2 : options.dtype == "uint32" ? 4 : 1;
  auto file = MappedFile::Open(path);
  if (!file.ok()) return Annotate(file.status(), key);
  const auto bytes = static_cast<int64_t>((*file)->bytes().size());
  if (bytes % item != 0) {
    return DataError(fmt::format(
        "{}'{}' has {} bytes, which is no whole number of {} tokens of {} bytes: it is cut short, "
        "or its tokens have another type",
        key, path, bytes, options.dtype, item));
  }
  const int64_t needed = options.length + (options.targets ? 1 : 0);
  if (bytes / item < needed) {
    return DataError(fmt::format("{}'{}' has {} tokens, and one example takes {}{}", key, path,
                                 bytes / item, needed,
                                 options.targets ? ", the last one's target among them" : ""));
  }
  std::vector<Column> components = {{"tokens", at::kLong, {options.length}}};
  if (options.targets) components.push_back({"next_tokens", at::kLong, {options.length}});
  return ChooseColumns(split, std::make_shared<WindowDataset>(*std::move(file), options, item),
                       components);
}

}  // namespace muster::data
