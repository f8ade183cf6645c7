// Delivers this process's flight records to the chief on its own thread, so that only WaitIdle and
// the destructor block. A failed delivery is retried, also with the chief's successor. If the
// process's last record cannot be delivered, it goes to the system's temporary folder, and a log
// line names the file.
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

struct FlightCourierOptions {
  // Returns a channel to the chief; called at each attempt.
  std::function<std::shared_ptr<grpc::Channel>()> channel;
  std::string cluster_digest;
  std::string fallback_folder;  // Empty: the system's temporary folder.
  Duration deadline = std::chrono::seconds(2);
  Duration retry = std::chrono::seconds(1);
  std::function<void()> on_idle;  // Called on the courier's thread when nothing is left to deliver.
};

class FlightCourier {
 public:
  explicit FlightCourier(FlightCourierOptions options);
  // Delivers the remaining records or writes them to the folder.
  ~FlightCourier();

  // Takes the current content of `recorder`. `last`: this process ends soon.
  void Keep(FlightHeader header, const FlightRecorder& recorder, bool last);
  // Retries now, because the chief or its successor was just reached.
  void Retry();
  // Returns whether records are left to deliver.
  bool busy() const;
  // Blocks until none is left, or for `limit`.
  void WaitIdle(Duration limit);

 private:
  struct Parcel {
    FlightHeader header;
    std::vector<FlightEvent> events;
    uint64_t recorded = 0;
    std::string text;  // Set once rendered.
  };
  void Run();
  // Returns true if nothing more is to be done for the record.
  bool Deliver(const Parcel& parcel);
  void PutAside(const Parcel& parcel);

  const FlightCourierOptions options_;
  mutable absl::Mutex mu_;
  CondVar changed_;
  std::deque<Parcel> queue_ ABSL_GUARDED_BY(mu_);
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool wait_ ABSL_GUARDED_BY(mu_) = false;  // The last attempt failed.
  bool last_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace muster
