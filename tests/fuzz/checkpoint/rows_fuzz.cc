// The rows of embedding tables, in the files of a checkpoint: as they are restored, and as an
// export joins them.
#include "common/checkpoint/row_source.h"
#include "common/checkpoint/safetensors.h"
#include "common/push_pull/rows/embedding_table.h"
#include "common/train/embedding/table_rows.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster {
namespace {

using push_pull::EmbeddingTable;

std::shared_ptr<const checkpoint::RowSource> Open(const std::string& path, std::string_view bytes) {
  static checkpoint::MemoryFileSystem& files = *new checkpoint::MemoryFileSystem;
  {
    auto file = files.Create(path);
    fuzz::Require(file.ok() && (*file)->Append(bytes).ok(), "a file in memory");
    fuzz::Require((*file)->Sync().ok() && files.SyncDirectory("/").ok(), "a file in memory");
  }
  auto file = files.Open(path);
  fuzz::Require(file.ok(), "a file in memory");
  auto rows = checkpoint::OpenRows(*std::move(file));
  return rows.ok() ? *std::move(rows) : nullptr;
}

void Restore(const checkpoint::RowSources& sources, const EmbeddingTable::Options& options) {
  const auto rows = TableRows::Find(sources, "t", options, /*slots=*/true);
  if (!rows.ok()) return;
  const auto table = EmbeddingTable::Make(options);
  int64_t seen = 0;
  const absl::Status read = rows->ForEach(
      [&](std::span<const uint64_t> keys, std::span<const float> values) -> absl::Status {
        const size_t elements = values.size() / keys.size();
        for (size_t i = 0; i < keys.size(); ++i)
          MUSTER_RETURN_IF_ERROR(table->Restore(keys[i], values.subspan(i * elements, elements)));
        seen += static_cast<int64_t>(keys.size());
        return absl::OkStatus();
      });
  int64_t there = 0;
  for (const auto& source : sources)
    if (const int keys = source->Find("t.keys"); keys >= 0)
      there += source->tensors()[keys].shape[0];
  fuzz::Require(!read.ok() || (seen == there && table->size() <= seen), "all rows are read");
}

void Join(const checkpoint::RowSources& sources, size_t size) {
  checkpoint::TensorSet model, optimizer;
  if (!JoinRows(sources, &model, &optimizer).ok()) return;
  size_t bytes = 0;
  unsigned sum = 0;
  std::vector<checkpoint::TensorInfo> all;
  for (const auto* set : {&model, &optimizer})
    for (const checkpoint::Tensor& tensor : set->tensors) {
      all.push_back(tensor);
      bytes += tensor.bytes();
      for (size_t i = 0; i < tensor.bytes(); ++i) sum += static_cast<uint8_t>(tensor.data[i]);
    }
  (void)sum;
  fuzz::Require(bytes <= size, "joined rows are as large as their files at most");
  fuzz::Require(checkpoint::PlanSafetensors(all).ok() || all.empty() || all[0].name.empty(),
                "joined rows can be written");
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  const auto flags = bytes.Take<uint8_t>();
  checkpoint::RowSources sources;
  const std::string_view first = bytes.Piece();
  for (const auto& [path, text] : {std::pair("/first", first), std::pair("/second", bytes.Rest())})
    if (auto rows = Open(path, text)) sources.push_back(std::move(rows));
  EmbeddingTable::Options options;
  options.width = 2;
  options.shards = 1;
  if ((flags & 1) != 0) options.rule = AdagradSpec();
  if ((flags & 2) != 0) options.limits.max_rows = 3;
  Restore(sources, options);
  Join(sources, size);
  return 0;
}
