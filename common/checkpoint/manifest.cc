#include "common/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/checkpoint/state/fields.h"

namespace muster::checkpoint {

std::string KeptFile(const std::string& callback) {
  return fmt::format("weights.{}.safetensors", callback);
}

std::string CallbackOfFile(const std::string& file) {
  constexpr std::string_view kBegin = "weights.", kEnd = ".safetensors";
  if (!file.starts_with(kBegin) || !file.ends_with(kEnd)) return "";
  if (file.size() <= kBegin.size() + kEnd.size()) return "";
  const std::string name = file.substr(kBegin.size(), file.size() - kBegin.size() - kEnd.size());
  const bool good = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  return good ? name : "";
}

std::string TablesFile(int index, int servers) {
  return fmt::format("tables-{:05}-of-{:05}.safetensors", index + 1, servers);
}

bool IsTablesFile(const std::string& file) {
  static const std::string kPattern = "tables-#####-of-#####.safetensors";
  return std::equal(
      file.begin(), file.end(), kPattern.begin(), kPattern.end(),
      [](unsigned char c, char p) { return p == '#' ? std::isdigit(c) != 0 : c == p; });
}

namespace {

constexpr int64_t kFormatVersion = 1;

bool ParseHex(const std::string& text, uint32_t* out) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *out, 16);
  return text.size() == 8 && error == std::errc() && rest == end;
}

absl::Status ReadFiles(const Json& files, Manifest* manifest) {
  if (!files.is_object()) return DataError("its field \"files\" must be an object");
  for (const auto& [name, json] : files.items()) {
    Manifest::File& file = manifest->files[name];
    std::string crc;
    const absl::Status status =
        Fields(json).Read("bytes", &file.bytes).Read("crc32c", &crc).Finish();
    if (!status.ok() || !ParseHex(crc, &file.crc32c)) {
      return DataError(fmt::format("what it says of {} is wrong", Json(name).dump()));
    }
  }
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (!manifest->files.contains(name))
      return DataError(fmt::format("it says nothing of {}", name));
  }
  const auto kept =
      std::count_if(manifest->files.begin(), manifest->files.end(), [](const auto& file) {
        return !CallbackOfFile(file.first).empty() || IsTablesFile(file.first);
      });
  const size_t known = 3 + manifest->files.count(kReplicaBuffersFile) + static_cast<size_t>(kept);
  if (manifest->files.size() != known)
    return DataError("it names other files than a checkpoint has");
  return absl::OkStatus();
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"crc32c", fmt::format("{:08x}", file.crc32c)}};
  }
  const nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                       {"step", manifest.step},
                                       {"total_bytes", manifest.bytes()},
                                       {"files", files}};
  return json.dump(2) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  const absl::StatusOr<Json> json = ParseJson(text, "it");
  if (!json.ok()) return DataError(Message(json.status()));
  int64_t version = 0;
  if (json->is_object() && json->contains("format_version")) {
    const Json& value = (*json)["format_version"];
    if (value.is_number_unsigned()) version = value.get<int64_t>();
  }
  if (version > kFormatVersion) {
    return DataError(fmt::format("its format_version is {}, this Muster reads up to {}", version,
                                 kFormatVersion));
  }
  Manifest manifest;
  int64_t total = 0;
  Json files;
  MUSTER_RETURN_IF_ERROR(Fields(*json)
                             .Read("format_version", &version)
                             .Read("step", &manifest.step)
                             .Read("total_bytes", &total)
                             .Read("files", &files)
                             .Finish());
  if (version != kFormatVersion) return DataError(fmt::format("its format_version is {}", version));
  MUSTER_RETURN_IF_ERROR(ReadFiles(files, &manifest));
  // Unsigned, because the sum of the sizes in a damaged manifest may overflow.
  uint64_t sum = 0;
  for (const auto& [name, file] : manifest.files) sum += static_cast<uint64_t>(file.bytes);
  if (sum != static_cast<uint64_t>(total)) {
    return DataError(fmt::format("its total_bytes is {}, but its files have {}", total, sum));
  }
  return manifest;
}

}  // namespace muster::checkpoint
