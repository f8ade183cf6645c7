// A member's flight recorder, and the courier that brings its records to the chief. All methods may
// be called from any thread; WaitIdle and Close from the same one, or in turn.
#pragma once

#include <memory>
#include <string>

#include "worker/flight_courier.h"
#include "worker/member_events.h"

namespace muster {

struct MemberRecordsOptions {
  std::string task, host;
  int64_t pid = 0;
  FlightCourierOptions courier;  // without a channel, records are not kept
};

class MemberRecords {
 public:
  explicit MemberRecords(MemberRecordsOptions options);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  // What the recorder holds now, for a generation of that run.
  void Keep(const membership::KeepRecord& record, const std::string& run_id);
  // The chief, or its successor, was just reached.
  void Retry();
  // Something is still to be brought.
  bool busy() const;
  // Until nothing is, or for `limit`.
  void WaitIdle(Duration limit);
  // Brings what is left, or puts it into a folder. Records that come later are not kept.
  void Close();

 private:
  const std::string task_, host_;
  const int64_t pid_;
  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  mutable absl::Mutex mu_;
  std::unique_ptr<FlightCourier> courier_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
