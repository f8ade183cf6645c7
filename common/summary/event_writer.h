// Writes a TensorBoard event file: scalars, text, images and histograms by tag and step. Not
// thread-safe.
//
// Records are buffered in memory. They are written every few seconds (Options::flush_interval), at
// Flush() and at the end. A full disk must not end a training run. The error is returned, and the
// records are kept (up to kMostPending bytes, then the newest are dropped) and retried at the next
// flush. While the process lives, records are never written partially, so that the file stays
// readable. TensorBoard ignores a last record that a killed process left incomplete. Flushed
// records survive a crash of the process. Sync() makes them survive a crash of the host.
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
  // `channels` is 1 (grey), 3 (RGB) or 4 (RGBA).
  int count = 0, height = 0, width = 0, channels = 0;
  // In the order [count][height][width][channels].
  const std::vector<uint8_t>& pixels;
};

class EventWriter {
 public:
  struct Options {
    // Training starts at this step: records of earlier files of this folder from this step on are
    // invalid. Every file, including the first, says so in a SessionLog START event. TensorBoard
    // takes the first such event of a run as its beginning, and only later ones as restarts.
    int64_t first_step = 1;
    Duration flush_interval = std::chrono::seconds(2);
    // Called before anything is written, including the creation of the file. After its first error
    // nothing is written any more, and every call returns that error. May be empty.
    std::function<absl::Status()> fence;
    // Called before each write. Its error is that of the write. May be empty.
    std::function<absl::Status()> check_disk;
  };
  using Values = std::vector<std::pair<std::string, double>>;  // Pairs of tag and value.

  // Creates a file `<directory>/events.out.tfevents.<seconds>.<host>.<pid>`, the last by name.
  // Makes the directory. The error is a ConfigurationError that names the path.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory,
                                                           Options options);
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  // Writes to an open descriptor and takes ownership of it. `path` is for messages.
  static std::unique_ptr<EventWriter> OnDescriptor(int fd, std::string path, Options options);
  ~EventWriter();  // Flushes.
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // TensorBoard stores float32. NaN and infinities are written unchanged.
  absl::Status Scalars(int64_t step, const Values& values);
  // TensorBoard renders it as Markdown, with tables and fenced code.
  absl::Status Text(int64_t step, const std::string& tag, const std::string& markdown);
  // Writes `count` pictures of one size under one tag, as PNG.
  absl::Status Images(int64_t step, const std::string& tag, const Pictures& pictures);
  // Writes the number of values that are not finite, if any, as the scalar "<tag>/not_finite".
  absl::Status Histogram(int64_t step, const std::string& tag, const Distribution& distribution);

  absl::Status Flush();
  // Flushes and returns when the file's contents are on the disk (fdatasync).
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
  absl::Status refused_;  // The fence's error, kept for ever.
};

}  // namespace muster::summary
