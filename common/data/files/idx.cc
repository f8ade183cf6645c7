// Reads IDX files as tensors. idx_header.cc describes the format.
#include "common/data/files/array_file.h"
#include "muster/data.h"

namespace muster::data {

absl::StatusOr<at::Tensor> ReadIdx(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenBytes(path, true));
  MUSTER_ASSIGN_OR_RETURN(const ArrayHeader header, ReadIdxHeader(*source, path));
  return ReadArray(std::move(source), path, header);
}

}  // namespace muster::data
