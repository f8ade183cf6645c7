// Tensors that are read piece by piece, so that nobody needs the memory for all of them: a file of
// a checkpoint, or tensors in memory. Pure reading: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/checkpoint/file_system.h"
#include "common/checkpoint/tensor.h"
#include "muster/status.h"

namespace muster::checkpoint {

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Bytes [begin, begin + bytes) of tensors()[tensor]. REQUIRES: it has these. Errors are the file
  // system's.
  virtual absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const = 0;
  // Likewise [first, first + count) of its first dimension; a scalar is one row.
  absl::Status Read(size_t tensor, int64_t first, int64_t count, char* out) const;

  // Its index in tensors(); -1: there is none of that name.
  int Find(std::string_view name) const;
};
using RowSources = std::vector<std::shared_ptr<const RowSource>>;

// A safetensors file, which may be renamed or removed meanwhile. A DataError is a clause that fits
// behind "FILE: ".
absl::StatusOr<std::shared_ptr<const RowSource>> OpenRows(std::unique_ptr<ReadableFile> file);
// Its tensors, as they are in the file.
TensorSet TensorsOf(std::shared_ptr<const RowSource> file);
// Bytes [begin, begin + bytes) of a tensor of the set, wherever they are. REQUIRES: it has these.
absl::Status ReadTensor(const TensorSet& set, const Tensor& tensor, int64_t begin, int64_t bytes,
                        char* out);
// Of both sets together, whose memory it shares.
std::shared_ptr<const RowSource> RowsInMemory(const TensorSet& model, const TensorSet& optimizer);

// All rows as tensors in memory: those of one name are one behind the other, in the order of the
// sources; of scalars the largest int64 is kept. "<table>.keys" and "<table>.rows" become part of
// `model`, the rest of `optimizer`.
absl::Status JoinRows(const RowSources& sources, TensorSet* model, TensorSet* optimizer);

}  // namespace muster::checkpoint
