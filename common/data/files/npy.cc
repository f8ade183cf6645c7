// Reads numpy's .npy files as tensors. npy_header.cc describes the format.
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "common/data/files/array_file.h"
#include "muster/data.h"

namespace muster::data {
namespace {

struct Opened {
  std::unique_ptr<ByteSource> source;  // At the start of the data.
  ArrayHeader header;
};

absl::StatusOr<Opened> OpenNpy(std::unique_ptr<ByteSource> source, const std::string& path) {
  Opened opened;
  opened.source = std::move(source);
  MUSTER_ASSIGN_OR_RETURN(opened.header, ReadNpyHeader(*opened.source, path));
  return opened;
}

absl::StatusOr<Opened> OpenNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(auto source, OpenBytes(path, false));
  return OpenNpy(std::move(source), path);
}

absl::StatusOr<at::Tensor> Read(Opened opened, const std::string& path) {
  return ReadArray(std::move(opened.source), path, opened.header);
}

// Returns the array as a view of `bytes`. REQUIRES: Mappable() is true, and `bytes` is the whole
// file.
at::Tensor View(const ArrayHeader& header, std::string_view bytes,
                std::shared_ptr<const void> owner) {
  return at::from_blob(
      const_cast<char*>(bytes.data()) + header.header_bytes, header.shape,
      [owner = std::move(owner)](void*) {}, at::TensorOptions(ScalarTypeOf(header.type)));
}

}  // namespace

absl::StatusOr<at::Tensor> ReadNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(path));
  return Read(std::move(opened), path);
}

absl::StatusOr<at::Tensor> MapNpy(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(path));
  const ArrayHeader& header = opened.header;
  const int64_t item = BytesOf(header.type);
  // Read() returns the error if the size is wrong.
  if (!Mappable(*opened.source, header) || header.header_bytes % item != 0)
    return Read(std::move(opened), path);
  const absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  // The path may name another file since the header was read.
  const int64_t bytes = header.header_bytes + ArrayBytes(header.shape, item).value_or(0);
  if (!file.ok() || static_cast<int64_t>((*file)->bytes().size()) < bytes)
    return Read(std::move(opened), path);
  return View(header, (*file)->bytes(), *file);
}

absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name) {
  MUSTER_ASSIGN_OR_RETURN(Opened opened, OpenNpy(MemoryBytes(bytes), name));
  if (!Mappable(*opened.source, opened.header)) return Read(std::move(opened), name);
  return View(opened.header, bytes, std::move(owner));
}

}  // namespace muster::data
