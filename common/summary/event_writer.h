// Writes a TensorBoard event file: scalars, texts, images and histograms, each with a tag and a
// step. Not thread-safe.
//
// The writer buffers records in memory. The writer writes the records to the file in Flush(), in
// the destructor, and in the first call after Options::flush_interval has passed. If a write fails,
// for example on a full disk, the call returns the error and the records stay in the buffer for the
// next flush. If the buffer has kMaxPending bytes, the writer drops new records. The next flush
// continues where the failed write stopped, so the file has no gap. A killed process may leave an
// incomplete last record, which TensorBoard ignores. Flushed records survive a crash of the
// process. After Sync(), the records also survive a crash of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/summary/histogram.h"
#include "muster/status.h"

namespace muster::summary {

// The beginning of an event file's name. TensorBoard looks for this text.
inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

class Event;

struct Pictures {
  // `channels` is 1 for grey, 3 for RGB, or 4 for RGBA.
  int count = 0, height = 0, width = 0, channels = 0;
  // The pixels in the order [count][height][width][channels]. The vector must outlive this object.
  const std::vector<uint8_t>& pixels;
};

class EventWriter {
 public:
  struct Options {
    // The first step that this writer may write. Every file begins with a SessionLog START event
    // that has this step. In TensorBoard, the event invalidates records of this and later steps in
    // older files of the folder. The first START event that TensorBoard sees marks the start of the
    // run and invalidates nothing. The first file of a run therefore needs a START event too.
    // Otherwise the START event of the second file would be the first START event, and would
    // invalidate nothing.
    int64_t first_step = 1;
    Duration flush_interval = std::chrono::seconds(2);
    // Checks that this process may still write to the folder. Called before each write and before
    // the creation of the file. After the first error of `fence`, the writer writes nothing, and
    // every call returns this error. May be null.
    std::function<absl::Status()> fence;
    // Called before each write. If `check_disk` returns an error, the write fails with this error.
    // May be null.
    std::function<absl::Status()> check_disk;
  };
  using Values = std::vector<std::pair<std::string, double>>;  // Each pair is a tag and a value.

  // Creates the file `<directory>/events.out.tfevents.<seconds>.<host>.<pid>.<random>`, and the
  // directory if it is missing. The file's name sorts after the names of older files. If the file
  // cannot be created, returns a ConfigurationError that names the path.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory,
                                                           Options options);
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  // Returns a writer to an open descriptor, and takes ownership of the descriptor. `path` is for
  // error messages.
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
  // Writes a histogram. If some values are not finite, also writes the number of these values as
  // the scalar "<tag>/not_finite".
  absl::Status Histogram(int64_t step, const std::string& tag, const Distribution& distribution);

  // Writes data for the TensorBoard plugin `plugin`, such as "hparams". The data are stored in the
  // metadata of `tag`.
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
