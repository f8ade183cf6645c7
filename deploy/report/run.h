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
  std::string name;  // A name that is unique in the report. NameRuns sets it.
  Json job, result;  // The content of job.json and result.json, or null.
  // Describes the losses of processes. Comes from the key "recovery" of result.json. If there is no
  // readable result.json, comes from recovery.json. Null if both are absent.
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

// Sets Run::name of each run to the shortest suffix of the run's path that no other run's path has.
// Returns a ConfigurationError if two paths are the same folder.
absl::Status NameRuns(std::vector<Run>* runs);

// Returns the training time of the run in seconds, summed over all chief processes of the run. The
// time of the current chief process is from result.json. The times of earlier chief processes are
// from TensorBoard events. If there is no result.json, all times are from TensorBoard events.
double SecondsOf(const Run& run);

}  // namespace muster::report
