// Writes a TensorBoard event file: scalars, texts, images and histograms, each with a tag and a
// step. Not thread-safe.
//
// Records are buffered in memory. They are written after Options::flush_interval, by Flush() and by
// the destructor. A failed write, such as on a full disk, returns the error, and the next flush
// tries again. The buffer holds up to kMaxPending bytes for this. If it is full, new records are
// dropped. A failed write leaves no partial record, so that the file stays readable. TensorBoard
// ignores an incomplete last record of a killed process. Flushed records survive a crash of the
// process. After Sync(), they also survive a crash of the host.
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
  // `channels` is 1 for grey, 3 for RGB, or 4 for RGBA.
  int count = 0, height = 0, width = 0, channels = 0;
  // The order is [count][height][width][channels].
  const std::vector<uint8_t>& pixels;
};

class EventWriter {
 public:
  struct Options {
    // The first step of training. Records of this step and of later steps in older files of the
    // folder become invalid. Every file begins with a SessionLog START event with this step, even
    // the first file of a run. TensorBoard treats the first such event as the start of the run, and
    // only later ones as restarts.
    int64_t first_step = 1;
    Duration flush_interval = std::chrono::seconds(2);
    // Called before each write and before the creation of the file. After the first error of
    // `fence`, nothing is written, and every call returns this error. May be null.
    std::function<absl::Status()> fence;
    // Called before each write. The write returns the error of `check_disk`. May be null.
    std::function<absl::Status()> check_disk;
  };
  using Values = std::vector<std::pair<std::string, double>>;  // Each pair is a tag and a value.

  // Creates the file `<directory>/events.out.tfevents.<seconds>.<host>.<pid>` and its directory.
  // The file's name sorts after the names of older files. Returns a ConfigurationError that names
  // the path.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory,
                                                           Options options);
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  // Returns a writer to an open descriptor, which it owns. `path` is for messages.
  static std::unique_ptr<EventWriter> OnDescriptor(int fd, std::string path, Options options);
  ~EventWriter();  // Flushes.
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Writes scalars as float32. NaN and infinities are allowed.
  absl::Status Scalars(int64_t step, const Values& values);
  // Writes a text. TensorBoard renders it as Markdown, with tables and fenced code.
  absl::Status Text(int64_t step, const std::string& tag, const std::string& markdown);
  // Writes pictures of one size under one tag, as PNG.
  absl::Status Images(int64_t step, const std::string& tag, const Pictures& pictures);
  // Writes a histogram. If values are not finite, also writes their number as the scalar
  // "<tag>/not_finite".
  absl::Status Histogram(int64_t step, const std::string& tag, const Distribution& distribution);

  // Writes data of a TensorBoard plugin that is in the metadata of a tag, such as "hparams".
  absl::Status PluginData(int64_t step, const std::string& tag, const char* plugin,
                          std::string content);
  // Writes the graph of the run, a serialized GraphDef.
  absl::Status Graph(int64_t step, std::string graph_def);

  absl::Status Flush();
  // Flushes, and blocks until the file's contents are on the disk (fdatasync).
  absl::Status Sync();

  const std::string& path() const { return path_; }
  static constexpr size_t kMaxPending = 4 << 20;

 private:
  EventWriter(int fd, std::string path, Options options);
  absl::Status Append(const Event& event);

  int fd_;
  std::string path_;
  Options options_;
  std::string pending_;
  MonotonicTime last_flush_;
  absl::Status refused_;  // The first error of Options::fence.
};

}  // namespace muster::summary
