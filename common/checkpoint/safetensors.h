// The safetensors format (github.com/huggingface/safetensors, "Format"): 8 bytes, the length of the
// header, little-endian; the header, JSON padded with spaces: by tensor name its type, shape and
// place in the data; then the data, without holes. Pure functions, any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checksummed_file.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/tensor.h"

namespace muster::checkpoint {

struct SafetensorsHeader {
  struct Entry : TensorInfo {
    int64_t begin = 0, end = 0;  // in the data
    std::string foreign;         // the name of a type that this version does not know; else ""
  };
  std::vector<Entry> tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // of the data in the file
};

// Checks everything that can be wrong: lengths, JSON, types, shapes, places that overlap, leave
// holes or lie outside, names that come twice. A DataError, a clause that fits behind "FILE: ".
// Types that this version does not know are an error, but where they are `foreign`.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ReadableFile& file);
// The same for the header's JSON, of a file with so many bytes of data.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         bool foreign = false);

// The whole file, with one copy of its data in memory; and the CRC-32C of all its bytes. A tensor
// of a foreign file need not be aligned to its type. `foreign`: takes those whose type this version
// does not know, by name, with that; null: they are an error. `metadata`, if any, gets the file's.
using ForeignTensors = std::map<std::string, std::string>;
using Metadata = std::map<std::string, std::string>;
absl::StatusOr<TensorSet> ReadSafetensors(const ReadableFile& file, uint32_t* crc,
                                          ForeignTensors* foreign = nullptr,
                                          Metadata* metadata = nullptr);

// Metadata is {"format": "pt"}, as Python's libraries expect it, and `more`. InvalidArgument where
// names are empty, not unique or not UTF-8, or a shape is negative.
// `append` gets the file's bytes in pieces; its first error ends it.
absl::Status WriteSafetensors(const TensorSet& set,
                              const std::function<absl::Status(std::string_view)>& append,
                              const Metadata& more = {});
inline absl::Status WriteSafetensors(const TensorSet& set, ChecksummedFile& out,
                                     const Metadata& more = {}) {
  return WriteSafetensors(
      set, [&out](std::string_view bytes) { return out.Append(bytes); }, more);
}

// What such a file begins with, for whoever writes the tensors' bytes piece by piece: in this
// order, one behind the other. Errors are WriteSafetensors'.
struct SafetensorsPlan {
  std::string head;
  std::vector<size_t> order;  // of `tensors`
  int64_t bytes = 0;          // of the whole file
};
absl::StatusOr<SafetensorsPlan> PlanSafetensors(const std::vector<TensorInfo>& tensors,
                                                const Metadata& more = {});

}  // namespace muster::checkpoint
