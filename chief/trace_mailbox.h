// Users can request a trace (a record of what tasks do during a few steps) through files in
// model_dir. TraceMailbox is the chief's side of this exchange. `muster trace MODEL_DIR` uses files
// because it may be unable to call the chief. The command may lack the chief's port, or the run key
// that `muster launch` gives only to its tasks. The command writes trace/request.json. The chief
// reads and removes this file. Once the trace is complete, the chief writes trace/answer-ID.json.
// Used by one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "muster/json.h"

namespace muster::chief {

class TraceMailbox {
 public:
  struct Request {
    std::string id;            // 1 to 32 hexadecimal digits.
    int64_t steps = 0;         // The number of steps to record.
    double limit_seconds = 0;  // Tasks record at most this long.
  };
  // `folder` is the path of model_dir/trace. `files` must outlive this object.
  TraceMailbox(checkpoint::FileSystem* files, std::string folder)
      : files_(files), folder_(std::move(folder)) {}

  bool HasRequest() const;
  // Reads the request and removes its file. Returns nullopt if the file is no valid request or
  // cannot be removed. REQUIRES: HasRequest().
  std::optional<Request> Take();
  // Writes `answer` to the answer file of the request `id`. Returns the error of the file system.
  absl::Status Answer(const std::string& id, const Json& answer);

 private:
  checkpoint::FileSystem* const files_;
  const std::string folder_;
};

}  // namespace muster::chief
