// npy and IDX files as tensors, once the header is read. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/data/array_header.h"

namespace muster::data {

at::ScalarType ScalarTypeOf(NumberType type);

// The array that is behind the header, in C order (ReadNumbers).
absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     const ArrayHeader& header);

// As ReadNpy, but the file is mapped rather than read where its layout allows it (C order, no bool,
// data at a multiple of the element's size): a page of it is read at its first use, and memory is
// shared between the processes of a host. The tensor must not be written to.
absl::StatusOr<at::Tensor> MapNpy(const std::string& path);

// An npy file that is in memory, which `owner` keeps: the tensor is a view of it where its layout
// allows that, whatever its alignment. The tensor must not be written to.
absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name);

}  // namespace muster::data
