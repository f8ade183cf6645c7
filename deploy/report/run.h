// Reads a model_dir, the folder of a run's output, for `muster report`. The run may be finished,
// running, killed or damaged.
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
  std::string path;  // The path as the user wrote it.
  std::string name;  // A name that no other run of the report has.
  Json job, result;  // The content of job.json and result.json, or null.
  // The value of "recovery" in result.json or, if there is no result.json, the content of
  // recovery.json. Null if both are absent. This JSON describes the losses of processes.
  Json recovery;
  // The content of the TensorBoard folders, keyed by their path in model_dir, such as "train" or
  // "system/worker-0".
  std::map<std::string, summary::RunContent> folders;
  // The flight records (docs/explain.md), in the order of their generations (periods of training
  // with fixed members). Records of the same generation are in the order of their file names.
  std::vector<FlightRecord> flights;
  // One sentence for each part of the model_dir that cannot be read.
  std::vector<std::string> problems;
  // The times of the first and the last TensorBoard event of all folders, in seconds since 1970. 0
  // if there are no events.
  double began = 0, last = 0;
};

// Reads the model_dir at `path`. Returns a ConfigurationError if `path` is not a model_dir.
absl::StatusOr<Run> ReadModelDir(const std::string& path);

// Sets Run::name of each run to the shortest end of the run's path that is not the end of another
// run's path. Returns a ConfigurationError if two paths are the same folder.
absl::Status NameRuns(std::vector<Run>* runs);

// Returns for how many seconds the run has trained, over all starts of its chief. The time of the
// current chief process is from result.json. The times of earlier chief processes, and of a run
// without result.json, are from the times of TensorBoard events.
double SecondsOf(const Run& run);

}  // namespace muster::report
