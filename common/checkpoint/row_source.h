// Tensors whose first dimension is rows of embedding tables, read a block at a time, so that nobody
// needs the memory for all of them: a file of a checkpoint, or tensors in memory. Pure reading: any
// thread.
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
  // The bytes of rows [first, first + count) of tensors()[tensor]; a scalar is one row. REQUIRES:
  // the tensor has these rows. Errors are the file system's.
  virtual absl::Status Read(size_t tensor, int64_t first, int64_t count, char* out) const = 0;

  // Its index in tensors(); -1: there is none of that name.
  int Find(std::string_view name) const;
};
using RowSources = std::vector<std::shared_ptr<const RowSource>>;

// A safetensors file, which may be renamed or removed meanwhile. A DataError is a clause that fits
// behind "FILE: ".
absl::StatusOr<std::shared_ptr<const RowSource>> OpenRows(std::unique_ptr<ReadableFile> file);
// Of both sets together, whose memory it shares.
std::shared_ptr<const RowSource> RowsInMemory(const TensorSet& model, const TensorSet& optimizer);

// All rows as tensors in memory: those of one name are one behind the other, in the order of the
// sources; of scalars the largest int64 is kept. "<table>.keys" and "<table>.rows" become part of
// `model`, the rest of `optimizer`.
absl::Status JoinRows(const RowSources& sources, TensorSet* model, TensorSet* optimizer);

}  // namespace muster::checkpoint
