// A member's flight recorder, and the courier that delivers its records to the chief. Thread-safe,
// but WaitIdle and Close must not run at the same time.
#pragma once

#include <memory>
#include <string>

#include "common/membership/member_events.h"
#include "common/session/flight_courier.h"

namespace muster {

struct MemberRecordsOptions {
  std::string task, host;
  int64_t pid = 0;
  FlightCourierOptions courier;  // Without a channel, records are not kept.
};

class MemberRecords {
 public:
  explicit MemberRecords(MemberRecordsOptions options);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  // Takes the recorder's current content for a generation of that run.
  void Keep(const membership::KeepRecord& record, const std::string& run_id);
  // Retries now, because the chief or its successor was just reached.
  void Retry();
  // Returns whether records are left to deliver.
  bool busy() const;
  // Blocks until none is left, or for `limit`.
  void WaitIdle(Duration limit);
  // Delivers the remaining records or writes them to a folder. Later records are not kept.
  void Close();

 private:
  const std::string task_, host_;
  const int64_t pid_;
  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  mutable absl::Mutex mu_;
  std::unique_ptr<FlightCourier> courier_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
