// manifest.json lists the files of a checkpoint with their sizes and checksums, so that every byte
// can be checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
// Present only in checkpoints of programs that have such buffers.
inline constexpr char kReplicaBuffersFile[] = "replica_buffers.safetensors";
// KeptFile returns "weights.<callback>.safetensors", the file of the weights that a callback keeps.
// CallbackOfFile returns the callback of such a file, and "" for any other file.
std::string KeptFile(const std::string& callback);
std::string CallbackOfFile(const std::string& file);
// TablesFile returns "tables-00001-of-00004.safetensors", the file of the embedding table rows that
// parameter server `index` (from 0) of `servers` held. IsTablesFile is true for such a name.
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
  std::map<std::string, File> files;  // By name, all but the manifest.

  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [name, file] : files) sum += file.bytes;
    return sum;
  }
};
std::string ManifestText(const Manifest& manifest);
// A DataError is a clause that fits behind "manifest.json: ".
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace muster::checkpoint
