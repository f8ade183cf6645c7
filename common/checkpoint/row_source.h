// A source of tensors that are read piece by piece: a file of a checkpoint, or tensors in memory.
// The tensors of a file need not fit in memory. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/tensor.h"
#include "muster/status.h"

namespace muster::checkpoint {

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Reads bytes [begin, begin + bytes) of tensors()[tensor]. REQUIRES: the range is within the
  // tensor. Returns errors of the file system.
  virtual absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const = 0;
  // Reads rows [first, first + count) of tensors()[tensor]. Rows are slices along the first
  // dimension. A scalar is one row.
  absl::Status Read(size_t tensor, int64_t first, int64_t count, char* out) const;

  // Returns the index in tensors(), or -1 if no tensor has this name.
  int Find(std::string_view name) const;
};
using RowSources = std::vector<std::shared_ptr<const RowSource>>;

// Opens a safetensors file. The result stays valid when the file is renamed or removed. The message
// of a DataError does not contain the file's name. The caller adds the name in front.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenRows(std::unique_ptr<ReadableFile> file);
// Returns a set of the tensors of `file`. The bytes of the tensors stay in the file.
TensorSet TensorsOf(std::shared_ptr<const RowSource> file);
// Reads bytes [begin, begin + bytes) of a tensor of the set, from memory or from the set's file.
// REQUIRES: the range is within the tensor.
absl::Status ReadTensor(const TensorSet& set, const Tensor& tensor, int64_t begin, int64_t bytes,
                        char* out);
// Returns a source with the tensors of both sets. The source shares the memory of the sets.
std::shared_ptr<const RowSource> RowsInMemory(const TensorSet& model, const TensorSet& optimizer);

// Reads all tensors of `sources` into memory. Concatenates the rows of tensors of the same name, in
// the order of the sources. Scalars must be int64. If several scalars have the same name, keeps
// only the largest one. Adds the keys and rows of embedding tables ("<table>.keys", "<table>.rows")
// to `*model`, and all other tensors to `*optimizer`.
absl::Status JoinRows(const RowSources& sources, TensorSet* model, TensorSet* optimizer);

}  // namespace muster::checkpoint
