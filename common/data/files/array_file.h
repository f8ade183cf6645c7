// Reads the arrays of npy and IDX files as tensors. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/data/files/array_header.h"

namespace muster::data {

at::ScalarType ScalarTypeOf(NumberType type);

// Reads the array data after the header, and returns the array in C order. REQUIRES: `source` is at
// the end of the header.
absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     const ArrayHeader& header);

// Returns the same array as ReadNpy, but maps the npy file if possible. Mapping requires that
// Mappable (array_header.h) returns true, and that the data begins at a multiple of the element's
// size. The kernel reads a page of a mapped file when a process first uses the page. All processes
// of a host share the memory. Callers must not write to the tensor.
absl::StatusOr<at::Tensor> MapNpy(const std::string& path);

// Returns the array of the npy file whose content is `bytes`. `owner` keeps `bytes` alive. If
// possible, the tensor is a view of `bytes`. The address of a view may not be aligned to the type.
// `name` is the file's name for messages. Callers must not write to the tensor.
absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name);

}  // namespace muster::data
