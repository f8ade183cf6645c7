#include "deploy/launcher/task_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "common/base/files/created_files.h"

namespace muster::launcher {

absl::StatusOr<TaskLog> TaskLog::Open(const std::string& directory, const PlannedTask& task) {
  if (const int error = MakeFolders(directory); error != 0) {
    return ConfigurationError(
        fmt::format("cannot make the folder for logs {}: {}", directory, std::strerror(error)));
  }
  TaskLog log;
  log.path_ = fmt::format("{}/{}-{}.log", directory, TaskTypeName(task.type), task.index);
  log.fd_ = CreateFile(log.path_, O_WRONLY | O_APPEND);
  if (!log.fd_) {
    return ConfigurationError(fmt::format("cannot write {}: {}", log.path_, FileErrorText(errno)));
  }
  MUSTER_RETURN_IF_ERROR(log.Append(fmt::format("---- muster launch, {:%Y-%m-%d %H:%M:%S} ----",
                                                fmt::localtime(std::time(nullptr)))));
  return log;
}

absl::Status TaskLog::Append(std::string_view line) {
  constexpr size_t kFlushAt = 64 * 1024;
  if (!fd_) return absl::OkStatus();
  pending_ += line;
  pending_ += '\n';
  return pending_.size() < kFlushAt ? absl::OkStatus() : Flush();
}

absl::Status TaskLog::Flush() {
  size_t done = 0;
  while (fd_ && done < pending_.size()) {
    const ssize_t written = write(fd_.get(), pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fd_.Reset();
      pending_.clear();
      return ConfigurationError(
          fmt::format("cannot write {}, which ends here: {}", path_, std::strerror(errno)));
    }
    done += static_cast<size_t>(written);
  }
  pending_.clear();
  return absl::OkStatus();
}

}  // namespace muster::launcher
