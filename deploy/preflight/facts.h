// The data that tasks exchange in a session of `muster preflight`, and its JSON form. Value types.
// The parsers sanitize text of other tasks, because it is printed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/preflight/checks.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::preflight {

// A task and its host.
struct Facts {
  std::string task;           // "worker:1"
  std::string host, host_id;  // rpc::HostIdentity
  // JobToJson of its job file, with the digests of the job's files. Null if it has no job file.
  Json job;
  // Keyed by name, such as "LibTorch". Has only known versions.
  std::map<std::string, std::string> versions;
  std::string data_address;   // The numeric address for data connections. "": unknown.
  std::vector<Check> checks;  // Its own warnings and failures.
};
Json ToJson(const Facts& facts);
absl::StatusOr<Facts> FactsFromJson(const Json& json);

// The offset of another host's clock, measured by the shortest of several round trips.
struct ClockOffset {
  double seconds = 0;      // Positive if the other clock is ahead.
  double uncertainty = 0;  // Seconds: half the round trip.
  double round_trip = 0;
};

// The path from one task to another.
struct PathFacts {
  std::string from, to;                    // Tasks.
  std::string problem;                     // Why the measurement failed, "" if it did not.
  int own_mtu = 0, mtu = 0, told_mtu = 0;  // PathMtu
  double bits_per_second = 0;
  double round_trip = 0;  // In seconds.
};
Json ToJson(const PathFacts& path);
absl::StatusOr<PathFacts> PathFactsFromJson(const Json& json);

Json ToJson(const std::vector<Check>& checks);
absl::StatusOr<std::vector<Check>> ChecksFromJson(const Json& json);

}  // namespace muster::preflight
