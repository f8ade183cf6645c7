// Owns a member's FlightRecorder, and the FlightUploader that delivers flight records to the chief.
// The recorder holds the last events of this process. A flight record is the recorder's content at
// the end of a generation (a period of training with fixed members). Thread-safe, except that
// WaitIdle must not run at the same time as Close.
#pragma once

#include <memory>
#include <string>

#include "common/membership/state_machine/member_events.h"
#include "common/session/flight_uploader.h"

namespace muster::membership {

struct MemberRecordsOptions {
  std::string task, host;
  int64_t pid = 0;
  FlightUploaderOptions uploader;  // If uploader.channel is null, records are discarded.
};

class MemberRecords {
 public:
  explicit MemberRecords(MemberRecordsOptions options);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  // Makes a flight record of the recorder's current content. The uploader's thread delivers the
  // record. `record` names the generation. `run_id` names the run.
  void Enqueue(const SubmitRecord& record, const std::string& run_id);
  // Makes the uploader retry at once. Called when a chief has answered.
  void Retry();
  // Returns true if some records are not delivered yet.
  bool busy() const;
  // Blocks until all records are delivered, for at most `limit`.
  void WaitIdle(Duration limit);
  // Tries to deliver the remaining records. Writes the undelivered records to files in
  // FlightUploaderOptions::fallback_folder. Later calls of Enqueue have no effect.
  void Close();

 private:
  const std::string task_, host_;
  const int64_t pid_;
  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  mutable absl::Mutex mu_;
  std::unique_ptr<FlightUploader> uploader_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
