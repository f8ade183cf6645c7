#include "common/membership/resources/member_records.h"

#include <utility>

namespace muster::membership {

MemberRecords::MemberRecords(MemberRecordsOptions options)
    : task_(std::move(options.task)), host_(std::move(options.host)), pid_(options.pid) {
  if (options.uploader.channel == nullptr) return;
  absl::MutexLock lock(&mu_);
  uploader_ = std::make_unique<FlightUploader>(std::move(options.uploader));
}

void MemberRecords::Enqueue(const SubmitRecord& record, const std::string& run_id) {
  FlightHeader header;
  header.task = task_;
  header.host = host_;
  header.pid = pid_;
  header.run_id = run_id;
  header.generation = record.roster->generation;
  for (const RosterMember& member : record.roster->members) header.members.push_back(member.task);
  header.reason = record.reason;
  absl::MutexLock lock(&mu_);
  if (uploader_ != nullptr) uploader_->Enqueue(std::move(header), *recorder_, record.last);
}

void MemberRecords::Retry() {
  absl::MutexLock lock(&mu_);
  if (uploader_ != nullptr) uploader_->Retry();
}

bool MemberRecords::busy() const {
  absl::MutexLock lock(&mu_);
  return uploader_ != nullptr && uploader_->busy();
}

void MemberRecords::WaitIdle(Duration limit) {
  FlightUploader* uploader;
  {
    absl::MutexLock lock(&mu_);
    uploader = uploader_.get();
  }
  if (uploader != nullptr) uploader->WaitIdle(limit);
}

void MemberRecords::Close() {
  std::unique_ptr<FlightUploader> uploader;  // Destroyed without mu_, because it calls on_idle.
  absl::MutexLock lock(&mu_);
  uploader = std::move(uploader_);
}

}  // namespace muster::membership
