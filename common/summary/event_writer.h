// Writes a TensorBoard event file: scalars by tag and step. For one thread at a time.
//
// Records are gathered in memory and go to the file every few seconds (Options::flush_interval),
// at Flush() and at the end. A disk that takes no more is no reason to end a training run: the
// error is returned, what does not fit is kept (up to kMostPending bytes, then the newest records
// are dropped) and tried again at the next flush. A record is never torn, so the file stays
// readable.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace muster::summary {

class EventWriter {
 public:
  struct Options {
    // Training starts here: what earlier files of this folder hold from this step on is void. Every
    // file says so in a SessionLog START event, the first one too: TensorBoard takes the first such
    // event of a run for its beginning, and only the later ones for restarts.
    int64_t first_step = 1;
    Duration flush_interval = std::chrono::seconds(2);
  };
  using Values = std::vector<std::pair<std::string, double>>;  // tag -> value

  // A new file `<directory>/events.out.tfevents.<seconds>.<host>.<pid>.<n>`; makes the directory.
  // The error is a ConfigurationError that names the path.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory,
                                                           Options options);
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  // The same onto an open descriptor, which it takes over. `path` is for messages.
  static std::unique_ptr<EventWriter> OnDescriptor(int fd, std::string path, Options options);
  ~EventWriter();  // Flushes.
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // TensorBoard stores float32.
  absl::Status Scalars(int64_t step, const Values& values);
  absl::Status Flush();

  const std::string& path() const { return path_; }
  static constexpr size_t kMostPending = 4 << 20;

 private:
  EventWriter(int fd, std::string path, Options options);
  absl::Status Append(const std::string& event);

  int fd_;
  std::string path_;
  Options options_;
  std::string pending_;
  MonotonicTime last_flush_;
};

}  // namespace muster::summary
