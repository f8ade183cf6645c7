// The safetensors format (github.com/huggingface/safetensors, "Format"). A file consists of 8 bytes
// with the length of the header, little-endian; the header; and the data, without holes. The header
// is JSON padded with spaces. It has type, shape and position in the data for each tensor name.
// Pure functions, thread-safe.
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
    int64_t begin = 0, end = 0;  // In the data.
    std::string foreign;         // The name of a type that this version does not know, else "".
  };
  std::vector<Entry> tensors;  // In the header's order.
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // Offset of the data in the file.
};

// Reads the header and checks lengths, JSON, types, shapes, positions that overlap, leave holes or
// are out of range, and duplicate names. A DataError is a clause that fits behind "FILE: ". A type
// that this version does not know is an error.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file);
// Parses the header's JSON of a file with `data_bytes` bytes of data, with the same checks. With
// `foreign`, types that this version does not know are accepted.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         bool foreign = false);

// Reads the whole file, with one copy of its data in memory, and sets the CRC-32C of all its bytes.
// Tensors of files from other programs need not be aligned to their type. `foreign` receives the
// tensors of types that this version does not know, by name, with the type's name. Where it is
// null, they are an error. `metadata` receives the file's metadata, and may be null.
using ForeignTensors = std::map<std::string, std::string>;
using Metadata = std::map<std::string, std::string>;
absl::StatusOr<TensorSet> ReadSafetensors(const ReadableFile& file, uint32_t* crc,
                                          ForeignTensors* foreign = nullptr,
                                          Metadata* metadata = nullptr);

// Writes the set, with metadata {"format": "pt"}, as Python's libraries expect, and `more`. Returns
// InvalidArgument where a name is empty, not unique or not UTF-8, or a shape is negative. `append`
// gets the file's bytes in pieces. Its first error ends the write.
absl::Status WriteSafetensors(const TensorSet& set,
                              const std::function<absl::Status(std::string_view)>& append,
                              const Metadata& more = {});
inline absl::Status WriteSafetensors(const TensorSet& set, ChecksummedFile& out,
                                     const Metadata& more = {}) {
  return WriteSafetensors(
      set, [&out](std::string_view bytes) { return out.Append(bytes); }, more);
}

// The start of a safetensors file, for a caller that writes the tensors' bytes piece by piece: one
// tensor after the other, in `order`. Errors are those of WriteSafetensors.
struct SafetensorsPlan {
  std::string head;
  std::vector<size_t> order;  // Indices into `tensors`.
  int64_t bytes = 0;          // Of the whole file.
};
absl::StatusOr<SafetensorsPlan> PlanSafetensors(const std::vector<TensorInfo>& tensors,
                                                const Metadata& more = {});

}  // namespace muster::checkpoint
