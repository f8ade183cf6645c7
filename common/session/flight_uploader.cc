#include "common/session/flight_uploader.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/channel.h"
#include "proto/flight.grpc.pb.h"

namespace muster {
namespace {

constexpr size_t kMaxQueued = 4;  // Older records are dropped.

}  // namespace

FlightUploader::FlightUploader(FlightUploaderOptions options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

FlightUploader::~FlightUploader() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void FlightUploader::Enqueue(FlightHeader header, const FlightRecorder& recorder, bool last) {
  PendingRecord record{std::move(header), recorder.Events(), recorder.recorded(), ""};
  absl::MutexLock lock(&mu_);
  last_ = last_ || last;
  if (queue_.size() == kMaxQueued) queue_.pop_front();
  queue_.push_back(std::move(record));
  changed_.SignalAll();
}

void FlightUploader::Retry() {
  absl::MutexLock lock(&mu_);
  wait_ = false;
  changed_.SignalAll();
}

bool FlightUploader::busy() const {
  absl::MutexLock lock(&mu_);
  return working_ || !queue_.empty();
}

void FlightUploader::WaitIdle(Duration limit) {
  const MonotonicTime until = Clock::now() + limit;
  absl::MutexLock lock(&mu_);
  while (working_ || !queue_.empty())
    if (changed_.WaitUntil(&mu_, until)) return;
}

void FlightUploader::Run() {
  absl::MutexLock lock(&mu_);
  for (;;) {
    while (queue_.empty() && !exiting_) changed_.Wait(&mu_);
    if (queue_.empty()) return;
    const MonotonicTime again = Clock::now() + options_.retry;
    while (wait_ && !last_ && !exiting_)
      if (changed_.WaitUntil(&mu_, again)) break;
    PendingRecord record = std::move(queue_.front());
    queue_.pop_front();
    working_ = true;
    // If one attempt failed and the process ends, the other records are not tried.
    const bool in_vain = wait_ && (last_ || exiting_);
    mu_.Unlock();
    if (record.text.empty())
      record.text = FlightText(record.header, record.events, record.recorded);
    const bool done = !in_vain && Deliver(record);
    mu_.Lock();
    const bool put_aside = !done && (last_ || exiting_);
    wait_ = !done;
    if (!done && !put_aside) queue_.push_front(std::move(record));
    if (put_aside) {
      mu_.Unlock();
      WriteToFolder(record);
      mu_.Lock();
    }
    working_ = false;
    changed_.SignalAll();
    if (!queue_.empty() || options_.on_idle == nullptr) continue;
    mu_.Unlock();
    options_.on_idle();
    mu_.Lock();
  }
}

bool FlightUploader::Deliver(const PendingRecord& record) {
  proto::FlightKeepRequest request;
  request.set_task(record.header.task);
  request.set_cluster_digest(options_.cluster_digest);
  request.set_run_id(record.header.run_id);
  request.set_generation(record.header.generation);
  request.set_record(record.text);
  proto::FlightKeepReply reply;
  const auto context = rpc::WithDeadline(options_.deadline);
  const grpc::Status status =
      proto::Flight::NewStub(options_.channel())->Keep(context.get(), request, &reply);
  if (!status.ok()) {
    LogDebug("the flight record has not reached the chief: {}", status.error_message());
    // A chief of another version may not support flight records, so a retry is useless.
    return status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  }
  if (!reply.kept()) LogDebug("the chief does not keep the flight record: {}", reply.reason());
  return true;
}

void FlightUploader::WriteToFolder(const PendingRecord& record) {
  std::error_code error;
  std::filesystem::path folder = options_.fallback_folder;
  if (folder.empty()) folder = std::filesystem::temp_directory_path(error);
  const std::string path =
      (folder / fmt::format("muster-{}-{}-{}", record.header.run_id,
                            FlightFolder(record.header.generation), FlightFile(record.header.task)))
          .string();
  // Other users may write to this folder, so the file must not be written through their links.
  if (!error) std::filesystem::remove(path, error);
  FILE* file = error ? nullptr : std::fopen(path.c_str(), "wxe");
  bool good = file != nullptr &&
              std::fwrite(record.text.data(), 1, record.text.size(), file) == record.text.size();
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (good) {
    LogWarning("cannot reach the chief: wrote this task's flight record to {}", path);
  } else {
    LogWarning("cannot reach the chief, and cannot write this task's flight record to {}", path);
  }
}

}  // namespace muster
