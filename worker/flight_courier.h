// Brings this process's flight records to the chief, on a thread of its own: nobody waits for it
// but who asks to. A record that the chief cannot be given now is tried again, also with the
// chief's successor; one that is the process's last goes to the system's temporary folder then, and
// one line of the log says where.
//
// All methods may be called from any thread.
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
#include "common/cluster/flight_record.h"

namespace muster {

struct FlightCourierOptions {
  std::function<std::shared_ptr<grpc::Channel>()> channel;  // to the chief, at each attempt
  std::string cluster_digest;
  std::string fallback_folder;  // empty: the system's temporary folder
  Duration deadline = std::chrono::seconds(2);
  Duration retry = std::chrono::seconds(1);
  std::function<void()> on_idle;  // nothing is left to bring; on the courier's thread
};

class FlightCourier {
 public:
  explicit FlightCourier(FlightCourierOptions options);
  // Brings what is left, or puts it into the folder.
  ~FlightCourier();

  // What `recorder` holds now. `last`: this process ends soon.
  void Keep(FlightHeader header, const FlightRecorder& recorder, bool last);
  // The chief, or its successor, was just reached.
  void Retry();
  // Something is still to be brought.
  bool busy() const;
  // Until nothing is, or for `limit`.
  void WaitIdle(Duration limit);

 private:
  struct Parcel {
    FlightHeader header;
    std::vector<FlightEvent> events;
    uint64_t recorded = 0;
    std::string text;  // once rendered
  };
  void Run();
  // True where there is nothing more to do about it.
  bool Deliver(const Parcel& parcel);
  void PutAside(const Parcel& parcel);

  const FlightCourierOptions options_;
  mutable absl::Mutex mu_;
  CondVar changed_;
  std::deque<Parcel> queue_ ABSL_GUARDED_BY(mu_);
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool wait_ ABSL_GUARDED_BY(mu_) = false;  // the last attempt failed
  bool last_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace muster
