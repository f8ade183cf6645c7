#include "common/push_pull/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::push_pull {
namespace {

constexpr int64_t kMaxConnections = 16;
constexpr std::array<std::string_view, 3> kCompressions = {"none", "bfloat16", "float16"};

}  // namespace

absl::StatusOr<ParameterServerOptions> ParseParameterServer(const Json& json) {
  JsonObject reader(json, "parameter_server");
  ParameterServerOptions options;
  int64_t max_staleness = 0;
  reader.Read("max_staleness", &max_staleness);
  if (reader.Has("max_staleness")) options.max_staleness = max_staleness;
  if (options.max_staleness && *options.max_staleness < 0)
    reader.Fail("max_staleness", fmt::format("must be at least 0, is {}", *options.max_staleness));
  if (reader.Has("copies") && reader.Has("replicas"))
    reader.Fail("replicas", "is the older name of \"copies\", which is there: leave it out");
  for (const char* key : {"replicas", "copies"}) {
    reader.Read(key, &options.copies);
    if (options.copies < 1 || options.copies > 2)
      reader.Fail(key, fmt::format("must be 1 or 2, is {}", options.copies));
  }
  reader.Read("chunk_bytes", &options.chunk_bytes);
  if (options.chunk_bytes < 4)
    reader.Fail("chunk_bytes", fmt::format("must be at least 4, is {}", options.chunk_bytes));
  std::string compression{kCompressions.front()};
  reader.Read("compression", &compression);
  const auto found = std::find(kCompressions.begin(), kCompressions.end(), compression);
  if (found == kCompressions.end()) {
    reader.Fail("compression", fmt::format("must be one of {}, is \"{}\"",
                                           fmt::join(kCompressions, ", "), compression));
  } else {
    options.compression = static_cast<Compression>(found - kCompressions.begin());
  }
  reader.Read("checksum", &options.checksum);
  reader.Read("connections", &options.connections);
  if (options.connections < 1 || options.connections > kMaxConnections)
    reader.Fail("connections",
                fmt::format("must be from 1 to {}, is {}", kMaxConnections, options.connections));
  Json partitioner;
  reader.Read("partitioner", &partitioner);
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  if (!partitioner.is_null()) {
    MUSTER_ASSIGN_OR_RETURN(options.partitioner, ParsePartitioner(partitioner));
  }
  return options;
}

void RenameParameterServerKeys(Json* json) {
  if (!json->is_object() || !json->contains("replicas") || json->contains("copies")) return;
  (*json)["copies"] = std::move((*json)["replicas"]);
  json->erase("replicas");
}

}  // namespace muster::push_pull
