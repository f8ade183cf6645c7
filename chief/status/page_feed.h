// PageFeed makes the messages for the readers (browsers) of the status page. A new reader first
// receives the whole state of the job. After that, it receives the changes, at most once a second.
// All readers share one PageFeed, which reads the coordinator's state at most once a second. Only
// AskAgain and Whole cause additional reads. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/status/run_watch.h"
#include "common/base/clock.h"
#include "muster/json.h"

namespace muster::chief {

struct PageMessage {
  uint64_t id = 0;
  // One JSON object. The first message for a reader has the key "state". A later message has the
  // key "patch", a JSON Merge Patch (RFC 7396) of the state, if the state has changed. "events" is
  // an array of the new events, each with its "number". "points" is {"replaces", "points"} with the
  // new points of the curves, each as [step, loss, examples per second, seconds of a step]. If
  // "replaces" is true, the reader discards the points that it has.
  std::string text;
};

// Returns the part of StatusToJson(reply) that the page shows. Rounds numbers to four digits, and
// rounds ages more coarsely, so that few values change within a second. Tasks are keyed by their
// index.
Json PageState(const proto::StatusReply& reply);

class PageFeed {
 public:
  // Returns the state of the job. Progress and events may be empty, because RunWatch has them.
  using Source = std::function<proto::StatusReply()>;

  // `watch` has the progress and the events of the job, and must outlive this object. The ids of
  // all messages are above `first_id`. `first_id` must be above all ids that earlier chiefs of the
  // run have used, because a browser that reconnects sends the last id that it has received.
  PageFeed(Source source, const RunWatch& watch, uint64_t first_id)
      : source_(std::move(source)), watch_(watch), id_(first_id) {}

  // Returns the next message for a reader. `after` is the id of the last message that the reader
  // has received, or 0 if it has received none. Returns nullopt if there is nothing new.
  std::optional<PageMessage> Next(uint64_t after, MonotonicTime now = Clock::now());
  // Makes the next call of Next() read the state, even within a second after the last read. Returns
  // whether Next() was called within the last two seconds.
  bool AskAgain(MonotonicTime now = Clock::now());
  // Returns the whole state, including the keys "curves" and "events". For scripts that read
  // /status.json.
  Json Whole();

 private:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  static constexpr size_t kMaxPatches = 20;

  proto::StatusReply Ask() const;
  void Refresh(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Source source_;
  const RunWatch& watch_;
  absl::Mutex mu_;
  uint64_t id_ ABSL_GUARDED_BY(mu_);
  std::optional<MonotonicTime> asked_at_ ABSL_GUARDED_BY(mu_);
  std::optional<MonotonicTime> read_at_ ABSL_GUARDED_BY(mu_);
  Json state_ ABSL_GUARDED_BY(mu_) = Json::object();
  CurveCursor points_ ABSL_GUARDED_BY(mu_);
  uint64_t events_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<PageMessage> patches_ ABSL_GUARDED_BY(mu_);  // The newest messages, oldest first.
};

}  // namespace muster::chief
