// A member's flight recorder, with the FlightUploader that delivers its records to the chief.
// Thread-safe, but WaitIdle and Close must not run at the same time.
#pragma once

#include <memory>
#include <string>

#include "common/membership/member_events.h"
#include "common/session/flight_uploader.h"

namespace muster::membership {

struct MemberRecordsOptions {
  std::string task, host;
  int64_t pid = 0;
  FlightUploaderOptions uploader;  // If it has no channel, records are not kept.
};

class MemberRecords {
 public:
  explicit MemberRecords(MemberRecordsOptions options);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  // Starts to deliver the recorder's current content, as the record of a generation of that run.
  void Enqueue(const SubmitRecord& record, const std::string& run_id);
  // Retries the delivery now. Called when the chief or its successor was reached.
  void Retry();
  // Returns whether records are left to deliver.
  bool busy() const;
  // Blocks until all records are delivered, for at most `limit`.
  void WaitIdle(Duration limit);
  // Delivers the remaining records, or writes them to a folder. Later calls of Enqueue have no
  // effect.
  void Close();

 private:
  const std::string task_, host_;
  const int64_t pid_;
  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  mutable absl::Mutex mu_;
  std::unique_ptr<FlightUploader> uploader_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
