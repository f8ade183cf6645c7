// The manifest of a checkpoint (manifest.json): a list of the files with their sizes and checksums.
// Readers check every byte of a checkpoint against its manifest.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
// Present only if the program has buffers that differ between replicas.
inline constexpr char kReplicaBuffersFile[] = "replica_buffers.safetensors";
// Returns "weights.<callback>.safetensors", the name of the file of weights that a callback keeps.
std::string KeptFile(const std::string& callback);
// Returns the name of the callback if `file` is a result of KeptFile. Returns "" for any other
// name.
std::string CallbackOfFile(const std::string& file);
// TablesFile returns the name of the file with the embedding rows of parameter server `index` (from
// 0) of `servers`: "tables-00001-of-00004.safetensors". IsTablesFile recognizes such names.
std::string TablesFile(int index, int servers);
bool IsTablesFile(const std::string& file);
inline constexpr char kStateFile[] = "state.json";
inline constexpr char kManifestFile[] = "manifest.json";

struct Manifest {
  struct File {
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  int64_t step = 0;
  std::map<std::string, File> files;  // All files except manifest.json, keyed by name.

  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [name, file] : files) sum += file.bytes;
    return sum;
  }
};
std::string ManifestText(const Manifest& manifest);
// Returns a DataError if the text is invalid. The caller puts "manifest.json: " before its message.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace muster::checkpoint
