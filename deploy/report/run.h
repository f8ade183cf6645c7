// Reads a model_dir for a report. A run may be finished, running, killed or damaged. Run::problems
// has a sentence for each part that cannot be read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/flight/flight_record.h"
#include "common/summary/event_reader.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::report {

struct Run {
  std::string path;  // As the user named it.
  std::string name;  // Unique in the report.
  Json job, result;  // Of job.json and result.json. Null if absent or damaged.
  // "recovery" of result.json, or recovery.json if there is no result yet. Null if absent.
  Json recovery;
  // The TensorBoard run folders, by their path in model_dir: "train", "system/worker-0".
  std::map<std::string, summary::RunContent> folders;
  std::vector<FlightRecord> flights;  // In the order of generations, then of file names.
  std::vector<std::string> problems;  // One sentence each.
  // The wall times of the first and the last event of all folders. 0 if there are no events.
  double began = 0, last = 0;
};

// Reads a model_dir. Returns a ConfigurationError if `path` is not one.
absl::StatusOr<Run> ReadModelDir(const std::string& path);

// Sets Run::name to the shortest end of each path that no other path has. Returns a
// ConfigurationError if two paths are the same folder.
absl::Status NameRuns(std::vector<Run>* runs);

// Returns the time in seconds that all processes of the run have trained. The current chief's part
// is from result.json. Parts of earlier chiefs, and of a run without a result, are from the times
// of their events.
double SecondsOf(const Run& run);

}  // namespace muster::report
