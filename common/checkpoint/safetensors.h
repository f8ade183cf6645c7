// Reads and writes the safetensors format (github.com/huggingface/safetensors, "Format"). A file
// has three parts: the length of the header (8 bytes, little-endian), the header, and the data. The
// header is JSON padded with spaces. It maps each tensor's name to its type, its shape and its
// position in the data. The data has no holes. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/files/checksummed_file.h"
#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/tensor.h"

namespace muster::checkpoint {

struct SafetensorsHeader {
  struct Entry : TensorInfo {
    int64_t begin = 0, end = 0;  // The position in the data.
    std::string foreign;         // The name of the type if DType lacks the type, otherwise "".
  };
  std::vector<Entry> tensors;  // In the header's order.
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // The offset of the data in the file.
};

// Reads and checks the header. Returns a DataError for wrong lengths, invalid JSON, unknown types,
// wrong shapes, duplicate names, and positions that overlap, leave holes or are out of range. The
// message does not contain the file's name. The caller adds the name in front.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file);
// Parses the JSON of a header, with the same checks. `data_bytes` is the size of the data. If
// `foreign` is true, unknown types are not an error.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         bool foreign);

// Reads the whole file, and sets `*crc` to the CRC-32C of all its bytes. Memory holds only one copy
// of the data, in the result. If another program wrote the file, tensors can be unaligned for their
// types. `foreign` receives the name of each tensor of unknown type and the name of its type. If
// `foreign` is null, a tensor of unknown type is an error. `metadata` receives the file's metadata,
// and may be null.
using ForeignTensors = std::map<std::string, std::string>;
using Metadata = std::map<std::string, std::string>;
absl::StatusOr<TensorSet> ReadSafetensors(const ReadableFile& file, uint32_t* crc,
                                          ForeignTensors* foreign = nullptr,
                                          Metadata* metadata = nullptr);

// Writes the set as a safetensors file. Calls `append` with the bytes of the file, piece by piece.
// If `append` returns an error, WriteSafetensors stops and returns this error. The metadata are
// `more` and {"format": "pt"}, which Python's libraries expect. Returns InvalidArgument if a name
// is empty, not unique or not UTF-8, or if a shape is negative.
absl::Status WriteSafetensors(const TensorSet& set,
                              const std::function<absl::Status(std::string_view)>& append,
                              const Metadata& more = {});
inline absl::Status WriteSafetensors(const TensorSet& set, ChecksummedFile& out,
                                     const Metadata& more = {}) {
  return WriteSafetensors(
      set, [&out](std::string_view bytes) { return out.Append(bytes); }, more);
}

// The beginning of a safetensors file, for a caller that writes the file itself. The caller writes
// `head`, then the bytes of the tensors in `order`.
struct SafetensorsPlan {
  std::string head;           // The length of the header, and the header.
  std::vector<size_t> order;  // Indices into `tensors`.
  int64_t bytes = 0;          // The size of the whole file.
};
// Returns the same errors as WriteSafetensors.
absl::StatusOr<SafetensorsPlan> PlanSafetensors(const std::vector<TensorInfo>& tensors,
                                                const Metadata& more = {});

}  // namespace muster::checkpoint
