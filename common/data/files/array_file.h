// Reads the arrays of npy and IDX files as tensors, once the header is read. Internal to this
// folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/data/files/array_header.h"

namespace muster::data {

at::ScalarType ScalarTypeOf(NumberType type);

// Reads the array after the header (ReadNumbers) and returns it in C order.
absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     const ArrayHeader& header);

// Reads as ReadNpy, but maps the file where its layout allows it (C order, no bool, data at a
// multiple of the element's size). A page is then read at its first use, and the processes of a
// host share the memory. Callers must not write to the tensor.
absl::StatusOr<at::Tensor> MapNpy(const std::string& path);

// Reads an npy file from memory that `owner` keeps alive. The tensor is a view of that memory where
// the layout allows it, at any alignment. Callers must not write to the tensor.
absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name);

}  // namespace muster::data
