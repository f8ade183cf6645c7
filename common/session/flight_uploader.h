// Delivers this process's flight records to the chief, on a dedicated thread. A flight record is a
// log of the last events before a failure (common/flight/flight_record.h). The uploader retries
// failed deliveries. If a new process replaces the chief's process, the uploader sends the records
// to the new process. When this process ends, the uploader writes the undelivered records to the
// fallback folder, and logs the names of the files. Only WaitIdle and the destructor block.
//
// Thread-safe.
#pragma once

#include <grpcpp/channel.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/flight/flight_record.h"

namespace muster {

struct FlightUploaderOptions {
  // Returns a channel to the chief. Called before each attempt.
  std::function<std::shared_ptr<grpc::Channel>()> channel;
  std::string cluster_digest;
  std::string fallback_folder;                  // "" means the system's temporary folder.
  Duration deadline = std::chrono::seconds(2);  // Deadline of one attempt.
  Duration retry = std::chrono::seconds(1);     // Delay after a failed attempt.
  // Called on the uploader's thread when the queue has become empty. May be null.
  std::function<void()> on_idle;
};

class FlightUploader {
 public:
  explicit FlightUploader(FlightUploaderOptions options);
  // Delivers the queued records. After a failed attempt, writes the rest to the fallback folder.
  ~FlightUploader();

  // Queues a record with the current events of `recorder`. If the queue is full, drops its oldest
  // record. If `last` is true, the process ends soon. From this call on, the uploader does not
  // retry failed deliveries, and writes the records to the fallback folder.
  void Enqueue(FlightHeader header, const FlightRecorder& recorder, bool last);
  // Retries immediately. Members call this when a chief has become reachable.
  void Retry();
  // Returns true if a record is neither delivered nor written to the fallback folder yet.
  bool busy() const;
  // Blocks until busy() is false, for at most `limit`.
  void WaitIdle(Duration limit);

 private:
  struct PendingRecord {
    FlightHeader header;
    std::vector<FlightEvent> events;
    uint64_t recorded = 0;
    std::string text;  // The text of the record's file. Empty before the first attempt.
  };
  void Run();
  // Returns true if the record is delivered, or if the chief does not support flight records.
  bool Deliver(const PendingRecord& record);
  void WriteToFolder(const PendingRecord& record);

  const FlightUploaderOptions options_;
  mutable absl::Mutex mu_;
  CondVar changed_;
  std::deque<PendingRecord> queue_ ABSL_GUARDED_BY(mu_);
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool wait_ ABSL_GUARDED_BY(mu_) = false;  // True if the last attempt failed.
  bool last_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace muster
