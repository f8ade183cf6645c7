#include "common/process/supervisor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/telemetry/progress.h"

namespace muster {
namespace {

constexpr const char* kLost = "lost";
constexpr const char* kFound = "found";

class PipeSupervisor final : public Supervisor {
 public:
  explicit PipeSupervisor(int fd) : fd_(fd) {}
  ~PipeSupervisor() override { close(fd_); }
  void ReportLost(const LostTask& lost) override { Send({false, lost}); }
  void ReportFound(const std::string& task) override { Send({true, {task, 0, "", {}}}); }

 private:
  // Sends one packet, completely or not at all.
  void Send(const SupervisorLine& line) const {
    const std::string text = Dump(SupervisorLineToJson(line)) + '\n';
    (void)send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  const int fd_;
};

class NullSupervisor final : public Supervisor {
 public:
  void ReportLost(const LostTask&) override {}
  void ReportFound(const std::string&) override {}
};

}  // namespace

Json SupervisorLineToJson(const SupervisorLine& line) {
  if (line.found) return {{kFound, {{"task", line.lost.task}}}};
  return {{kLost,
           {{"task", line.lost.task},
            {"pid", line.lost.pid},
            {"why", line.lost.why},
            {"grace_seconds", Seconds(line.lost.grace)}}}};
}

bool IsSupervisorLine(const Json& json) {
  return json.is_object() && (json.contains(kLost) || json.contains(kFound));
}

absl::StatusOr<SupervisorLine> SupervisorLineFromJson(const Json& json) {
  SupervisorLine line;
  line.found = json.contains(kFound);
  const char* kind = line.found ? kFound : kLost;
  double grace = 0;
  JsonObject object(json.at(kind), kind);
  object.Read("task", &line.lost.task);
  if (!line.found)
    object.Read("pid", &line.lost.pid).Read("why", &line.lost.why).Read("grace_seconds", &grace);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  line.lost.grace = FromSeconds(grace);
  return line;
}

std::unique_ptr<Supervisor> MakeSupervisor() {
  const std::optional<int> fd = ProgressFdFromEnvironment();
  if (!fd) return std::make_unique<NullSupervisor>();
  const int copy = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return std::make_unique<NullSupervisor>();
  fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return std::make_unique<PipeSupervisor>(copy);
}

}  // namespace muster
