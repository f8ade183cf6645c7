// Requests for traces through model_dir, for whoever cannot call the chief: `muster launch` makes a
// run key that only its tasks have, and a port may be known to nobody. `muster trace MODEL_DIR`
// writes trace/request.json, the chief takes it, and writes trace/answer-ID.json when the trace is
// complete. Used by one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "muster/json.h"

namespace muster::chief {

class TraceMailbox {
 public:
  struct Request {
    std::string id;  // Hexadecimal digits.
    int64_t steps = 0;
    double limit_seconds = 0;
  };
  TraceMailbox(checkpoint::FileSystem* files, std::string folder)
      : files_(files), folder_(std::move(folder)) {}

  bool HasRequest() const;
  // Takes a request and removes its file. A file that is no request is removed too.
  // REQUIRES: HasRequest().
  std::optional<Request> Take();
  absl::Status Answer(const std::string& id, const Json& answer);

 private:
  checkpoint::FileSystem* const files_;
  const std::string folder_;
};

}  // namespace muster::chief
