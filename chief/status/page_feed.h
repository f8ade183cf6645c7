// PageFeed makes the messages of the status page: the whole state for a new reader, then, at most
// once a second, the changes. All readers share one feed, so the coordinator's state is read at
// most once a second for any number of readers. Thread-safe.
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
  // One JSON object. A reader's first one has "state", and later ones have "patch", a JSON Merge
  // Patch of the state. "events" maps numbers to new events. "points" has the new points of the
  // curves: [step, loss, examples per second, seconds of a step].
  std::string text;
};

// Returns the part of StatusToJson that the page shows. Rounds numbers to four digits, and ages
// more coarsely, so that few values change within a second. Tasks are keyed by their index.
Json PageState(const proto::StatusReply& reply);

class PageFeed {
 public:
  // Returns the state without progress and events, which come from `watch`.
  using Source = std::function<proto::StatusReply()>;

  // All ids are above `first_id`. It must be above the ids of earlier chiefs of the run, because a
  // browser that reconnects sends the last id that it has seen. `watch` must outlive this object.
  PageFeed(Source source, const RunWatch& watch, uint64_t first_id)
      : source_(std::move(source)), watch_(watch), id_(first_id) {}

  // Returns the next message for a reader that has seen the message `after`, 0 if it has seen none.
  // Returns nullopt if there is nothing new.
  std::optional<PageMessage> Next(uint64_t after, MonotonicTime now = Clock::now());
  // Makes the next call of Next() read the state, even if less than a second has passed. Returns
  // whether a reader has called Next() within the last two seconds.
  bool AskAgain(MonotonicTime now = Clock::now());
  // Returns the whole state, with "curves" and "events", for scripts.
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
  std::deque<PageMessage> patches_ ABSL_GUARDED_BY(mu_);  // The newest ones, oldest first.
};

}  // namespace muster::chief
