// A dataset of windows of a file of tokens (token_file.h).
#include <ATen/ops/empty.h>

#include "common/base/files/files.h"
#include "common/data/batches.h"
#include "common/data/files/token_file.h"
#include "common/data/readers/readers.h"
#include "muster/data.h"

namespace muster::data {
namespace {

class WindowDataset final : public Dataset {
 public:
  explicit WindowDataset(std::shared_ptr<const TokenFile> file) : file_(std::move(file)) {}
  int64_t size() const override { return file_->windows(); }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Batch batch, GetBatch({index}, context));
    return OnlyExample(std::move(batch));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context&) const override {
    const int64_t length = file_->options().length;
    Batch batch;
    for (int64_t shift = 0; shift <= (file_->options().targets ? 1 : 0); ++shift) {
      batch.push_back(
          at::empty({static_cast<int64_t>(indices.size()), length}, at::TensorOptions(at::kLong)));
      auto* to = batch.back().mutable_data_ptr<int64_t>();
      for (const int64_t index : indices) {
        file_->Read(index, shift, to);
        to += length;
      }
    }
    return batch;
  }

 private:
  const std::shared_ptr<const TokenFile> file_;
};

}  // namespace

absl::StatusOr<OpenSplit> OpenWindows(const DataSplit& split, const std::string& folder) {
  const WindowOptions& options = split.windows;
  MUSTER_ASSIGN_OR_RETURN(
      auto file, TokenFile::Open(PathFrom(folder, split.paths[0]), options, split.key + ".path: "));
  std::vector<Column> components = {{"tokens", at::kLong, {options.length}}};
  if (options.targets) components.push_back({"next_tokens", at::kLong, {options.length}});
  return ChooseColumns(split, std::make_shared<WindowDataset>(std::move(file)), components);
}

}  // namespace muster::data
