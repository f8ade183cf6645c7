// Tensors that are read piece by piece, so that they need not fit in memory: a file of a
// checkpoint, or tensors in memory. Thread-safe, because it only reads.
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
  // tensor. Errors are the file system's.
  virtual absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const = 0;
  // Reads rows [first, first + count) of its first dimension. A scalar is one row.
  absl::Status Read(size_t tensor, int64_t first, int64_t count, char* out) const;

  // Returns the index in tensors(), or -1 where no tensor has that name.
  int Find(std::string_view name) const;
};
using RowSources = std::vector<std::shared_ptr<const RowSource>>;

// Opens a safetensors file. The result stays valid when the file is renamed or removed. A DataError
// is a clause that fits behind "FILE: ".
absl::StatusOr<std::shared_ptr<const RowSource>> OpenRows(std::unique_ptr<ReadableFile> file);
// Returns the tensors of `file`, whose bytes stay in the file.
TensorSet TensorsOf(std::shared_ptr<const RowSource> file);
// Reads bytes [begin, begin + bytes) of a tensor of the set, from memory or from the set's file.
// REQUIRES: the range is within the tensor.
absl::Status ReadTensor(const TensorSet& set, const Tensor& tensor, int64_t begin, int64_t bytes,
                        char* out);
// Returns a source of both sets together, which shares their memory.
std::shared_ptr<const RowSource> RowsInMemory(const TensorSet& model, const TensorSet& optimizer);

// Reads all rows into memory. Tensors of one name are concatenated in the order of the sources.
// Scalars must be int64, and the largest value is kept. "<table>.keys" and "<table>.rows" become
// part of `model`, the rest part of `optimizer`.
absl::Status JoinRows(const RowSources& sources, TensorSet* model, TensorSet* optimizer);

}  // namespace muster::checkpoint
