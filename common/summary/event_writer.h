// Writes a TensorBoard event file: scalars, text, images and histograms by tag and step. For one
// thread at a time.
//
// Records are gathered in memory and go to the file every few seconds (Options::flush_interval),
// at Flush() and at the end. A disk that takes no more is no reason to end a training run: the
// error is returned, what does not fit is kept (up to kMostPending bytes, then the newest records
// are dropped) and tried again at the next flush. A record is never torn while the process lives,
// so the file stays readable; TensorBoard leaves out a last one that a killed process did not
// finish. What was flushed survives the process, but not the host: Sync() is for that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/summary/histogram.h"
#include "muster/status.h"

namespace muster::summary {

class Event;

struct Pictures {
  int count = 0, height = 0, width = 0, channels = 0;  // channels: 1 (gray), 3 (RGB), 4 (RGBA)
  const std::vector<uint8_t>& pixels;                  // [count][height][width][channels]
};

class EventWriter {
 public:
  struct Options {
    // Training starts here: what earlier files of this folder hold from this step on is void. Every
    // file says so in a SessionLog START event, the first one too: TensorBoard takes the first such
    // event of a run for its beginning, and only the later ones for restarts.
    int64_t first_step = 1;
    Duration flush_interval = std::chrono::seconds(2);
    // Asked before anything goes to the file, its creation included. Once it has failed nothing is
    // written any more, and every call returns its error. Empty: there is none.
    std::function<absl::Status()> fence;
    // Asked before each write: its error is that write's. Empty: the disk alone has a say.
    std::function<absl::Status()> check_disk;
  };
  using Values = std::vector<std::pair<std::string, double>>;  // tag -> value

  // A new file `<directory>/events.out.tfevents.<seconds>.<host>.<pid>`, the last by name; makes
  // the directory. The error is a ConfigurationError that names the path.
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

  // TensorBoard stores float32. NaN and infinities are written as they are.
  absl::Status Scalars(int64_t step, const Values& values);
  // TensorBoard renders it as Markdown, with tables and fenced code.
  absl::Status Text(int64_t step, const std::string& tag, const std::string& markdown);
  // `count` pictures of one size under one tag; PNG in the file.
  absl::Status Images(int64_t step, const std::string& tag, const Pictures& pictures);
  // Where there are values that are not finite, their number is the scalar "<tag>/not_finite".
  absl::Status Histogram(int64_t step, const std::string& tag, const Distribution& distribution);

  absl::Status Flush();
  // Flush, and what is in the file is on the disk when it returns (fdatasync).
  absl::Status Sync();

  const std::string& path() const { return path_; }
  static constexpr size_t kMostPending = 4 << 20;

 private:
  EventWriter(int fd, std::string path, Options options);
  absl::Status Append(const Event& event);

  int fd_;
  std::string path_;
  Options options_;
  std::string pending_;
  MonotonicTime last_flush_;
  absl::Status refused_;  // what the fence said, for ever
};

}  // namespace muster::summary
