// What tasks tell each other in a session of `muster preflight`, and its form as JSON. Value types.
// Text of other tasks is sanitized when it is read, because it is printed.
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
  // JobToJson of its job file, with the digests of the job's files. Null: it has none.
  Json job;
  // By name, such as "LibTorch". A name without a version is left out.
  std::map<std::string, std::string> versions;
  std::string data_address;   // The numeric address of its data connections. "": unknown.
  std::vector<Check> checks;  // Its own checks with a warning or a failure.
};
Json ToJson(const Facts& facts);
absl::StatusOr<Facts> FactsFromJson(const Json& json);

// The offset of another host's clock, by the round trip that took the shortest time.
struct ClockOffset {
  double seconds = 0;      // Above 0: the other clock is ahead.
  double uncertainty = 0;  // The offset is certain within this, half the round trip.
  double round_trip = 0;
};

// The path from one task to another.
struct PathFacts {
  std::string from, to;                    // Tasks.
  std::string problem;                     // Why it could not be measured. "": it was.
  int own_mtu = 0, mtu = 0, told_mtu = 0;  // PathMtu
  double bits_per_second = 0;
  double round_trip = 0;  // Seconds.
};
Json ToJson(const PathFacts& path);
absl::StatusOr<PathFacts> PathFactsFromJson(const Json& json);

Json ToJson(const std::vector<Check>& checks);
absl::StatusOr<std::vector<Check>> ChecksFromJson(const Json& json);

}  // namespace muster::preflight
