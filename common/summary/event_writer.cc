#include "common/summary/event_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "common/summary/record.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

// For people who look at the curve; decides nothing.
double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string FileName() {
  static std::atomic<int> next{0};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(WallTime()),
                     HostName(), getpid(), next++);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Open(const std::string& directory,
                                                               Options options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return ConfigurationError(
        fmt::format("cannot make the folder for summaries {}: {}", directory, error.message()));
  }
  std::string path = directory + "/" + FileName();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return ConfigurationError(
        fmt::format("cannot write summaries to {}: {}", path, std::strerror(errno)));
  }
  auto writer = OnDescriptor(fd, std::move(path), options);
  MUSTER_RETURN_IF_ERROR(writer->Flush());  // without its first record it is no event file
  return writer;
}

std::unique_ptr<EventWriter> EventWriter::OnDescriptor(int fd, std::string path, Options options) {
  return std::unique_ptr<EventWriter>(new EventWriter(fd, std::move(path), options));
}

EventWriter::EventWriter(int fd, std::string path, Options options)
    : fd_(fd), path_(std::move(path)), options_(options), last_flush_(Clock::now()) {
  Event event;
  event.set_wall_time(WallTime());
  event.set_file_version("brain.Event:2");
  AppendRecord(event.SerializeAsString(), &pending_);
  event.set_step(options.first_step);
  event.mutable_session_log()->set_status(SessionLog::START);
  AppendRecord(event.SerializeAsString(), &pending_);
}

EventWriter::~EventWriter() {
  Flush().IgnoreError();
  close(fd_);
}

absl::Status EventWriter::Scalars(int64_t step, const Values& values) {
  Event event;
  event.set_wall_time(WallTime());
  event.set_step(step);
  for (const auto& [tag, number] : values) {
    Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(static_cast<float>(number));
  }
  return Append(event.SerializeAsString());
}

absl::Status EventWriter::Append(const std::string& event) {
  if (pending_.size() < kMostPending) AppendRecord(event, &pending_);
  if (Clock::now() - last_flush_ < options_.flush_interval) return absl::OkStatus();
  return Flush();
}

absl::Status EventWriter::Flush() {
  last_flush_ = Clock::now();
  size_t done = 0;
  absl::Status status;
  while (status.ok() && done < pending_.size()) {
    const ssize_t written = write(fd_, pending_.data() + done, pending_.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      status =
          DataError(fmt::format("cannot write summaries to {}: {}", path_, std::strerror(errno)));
    }
  }
  pending_.erase(0, done);
  return status;
}

}  // namespace muster::summary
