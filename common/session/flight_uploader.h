// Delivers this process's flight records to the chief, on its own thread. Only WaitIdle and the
// destructor block. A failed delivery is retried, also at the chief's successor. When the process
// ends, the courier writes records that it cannot deliver to the fallback folder, and logs the
// files' names.
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
  std::string fallback_folder;  // "" means the system's temporary folder.
  Duration deadline = std::chrono::seconds(2);
  Duration retry = std::chrono::seconds(1);
  std::function<void()> on_idle;  // Called on the courier's thread when no record is left.
};

class FlightUploader {
 public:
  explicit FlightUploader(FlightUploaderOptions options);
  // Tries to deliver the remaining records, and writes the rest to the fallback folder.
  ~FlightUploader();

  // Queues a record with the current events of `recorder`. `last` means that the process ends soon.
  void Enqueue(FlightHeader header, const FlightRecorder& recorder, bool last);
  // Retries immediately. Called when the chief or its successor has just become reachable.
  void Retry();
  // Returns true if records are left to deliver.
  bool busy() const;
  // Blocks until no record is left, for at most `limit`.
  void WaitIdle(Duration limit);

 private:
  struct PendingRecord {
    FlightHeader header;
    std::vector<FlightEvent> events;
    uint64_t recorded = 0;
    std::string text;  // The text of the file. Empty until it is first needed.
  };
  void Run();
  // Returns true if the record is delivered, or if a retry would be useless.
  bool Deliver(const PendingRecord& record);
  void WriteToFolder(const PendingRecord& record);

  const FlightUploaderOptions options_;
  mutable absl::Mutex mu_;
  CondVar changed_;
  std::deque<PendingRecord> queue_ ABSL_GUARDED_BY(mu_);
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool wait_ ABSL_GUARDED_BY(mu_) = false;  // The last attempt failed.
  bool last_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace muster
