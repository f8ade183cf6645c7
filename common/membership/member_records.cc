#include "common/membership/member_records.h"

#include <utility>

namespace muster {

MemberRecords::MemberRecords(MemberRecordsOptions options)
    : task_(std::move(options.task)), host_(std::move(options.host)), pid_(options.pid) {
  if (options.courier.channel == nullptr) return;
  absl::MutexLock lock(&mu_);
  courier_ = std::make_unique<FlightCourier>(std::move(options.courier));
}

void MemberRecords::Keep(const membership::KeepRecord& record, const std::string& run_id) {
  FlightHeader header;
  header.task = task_;
  header.host = host_;
  header.pid = pid_;
  header.run_id = run_id;
  header.generation = record.roster->generation;
  for (const membership::RosterMember& member : record.roster->members)
    header.members.push_back(member.task);
  header.reason = record.reason;
  absl::MutexLock lock(&mu_);
  if (courier_ != nullptr) courier_->Keep(std::move(header), *recorder_, record.last);
}

void MemberRecords::Retry() {
  absl::MutexLock lock(&mu_);
  if (courier_ != nullptr) courier_->Retry();
}

bool MemberRecords::busy() const {
  absl::MutexLock lock(&mu_);
  return courier_ != nullptr && courier_->busy();
}

void MemberRecords::WaitIdle(Duration limit) {
  FlightCourier* courier;
  {
    absl::MutexLock lock(&mu_);
    courier = courier_.get();
  }
  if (courier != nullptr) courier->WaitIdle(limit);
}

void MemberRecords::Close() {
  std::unique_ptr<FlightCourier> courier;  // Destroyed without mu_, because it calls on_idle.
  absl::MutexLock lock(&mu_);
  courier = std::move(courier_);
}

}  // namespace muster
