// What the readers of npy and IDX share once the header is read. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/byte_source.h"

namespace muster::data {

inline constexpr int kMaxDimensions = 32;

// Size in bytes of an array; nothing where that (or a stride, which a dimension of 0 does not
// shrink) would not fit in a tensor.
std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size);

// A tensor of this shape, filled with the rest of the file, in one pass, after the sizes have been
// compared: memory is never taken on a header's word alone. `header_bytes` have been read from
// `source`; where the gzip trailer leaves the size open the file is opened once more to count.
absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     int64_t header_bytes, const std::vector<int64_t>& shape,
                                     at::ScalarType type);

// As ReadNpy, but the file is mapped rather than read where its layout allows it (C order, no bool,
// data at a multiple of the element's size): a page of it is read at its first use, and memory is
// shared between the processes of a host. The tensor must not be written to.
absl::StatusOr<at::Tensor> MapNpy(const std::string& path);

// An npy file that is in memory, which `owner` keeps: the tensor is a view of it where its layout
// allows that, whatever its alignment. The tensor must not be written to.
absl::StatusOr<at::Tensor> NpyInMemory(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const std::string& name);

}  // namespace muster::data
