// The data that tasks exchange in a session of `muster preflight` (session.h), and the JSON form of
// the data. Value types. The parsers replace control characters in the text of other tasks, because
// this process prints the text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/preflight/checks.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::preflight {

// The data of a task about itself and its host.
struct Facts {
  std::string task;           // "worker:1"
  std::string host, host_id;  // `host_id` is rpc::HostIdentity.
  // The task's job file as JSON (JobToJson), with the digests of the job's files. Null if the task
  // has no job file.
  Json job;
  // Versions by name, such as "LibTorch". A version that the task does not know is absent.
  std::map<std::string, std::string> versions;
  // The task's numeric address for connections that carry gradients, or "" if unknown.
  std::string data_address;
  std::vector<Check> checks;  // The warnings and failures of the task's own checks.
};
Json ToJson(const Facts& facts);
absl::StatusOr<Facts> FactsFromJson(const Json& json);

// The offset of another host's clock. The task measures several round trips, and uses the shortest
// round trip.
struct ClockOffset {
  double seconds = 0;      // The offset: positive if the other clock is ahead.
  double uncertainty = 0;  // In seconds: half of `round_trip`.
  double round_trip = 0;
};

// The measurements of the network path from one task to another. `own_mtu`, `mtu` and
// `reported_mtu` are the fields `own`, `found` and `reported` of PathMtu (path.h).
struct PathFacts {
  std::string from, to;  // Tasks.
  std::string problem;   // Why the measurement failed, or "".
  int own_mtu = 0, mtu = 0, reported_mtu = 0;
  double bits_per_second = 0;
  double round_trip = 0;  // In seconds.
};
Json ToJson(const PathFacts& path);
absl::StatusOr<PathFacts> PathFactsFromJson(const Json& json);

Json ToJson(const std::vector<Check>& checks);
absl::StatusOr<std::vector<Check>> ChecksFromJson(const Json& json);

}  // namespace muster::preflight
