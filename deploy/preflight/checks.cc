#include "deploy/preflight/checks.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "deploy/launcher/gpus.h"

namespace muster::preflight {
namespace {

constexpr int64_t kBytesForEachMember = int64_t{32} << 20;

}  // namespace

Check CheckSharedMemory(int members_here, const std::string& folder) {
  Check check{.name = "shared memory"};
  if (members_here < 2) {
    check.what = "not needed: no other member on this host";
    return check;
  }
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) != 0) {
    check.ok = false;
    check.what = fmt::format("{}: {}", folder, std::strerror(errno));
    check.fix = "mount a tmpfs there; else the members of this host talk over TCP, which is slower";
    return check;
  }
  const int64_t free = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
  const int64_t needed = members_here * kBytesForEachMember;
  check.ok = free >= needed;
  check.what = fmt::format("{} MiB free in {} for {} members", free >> 20, folder, members_here);
  if (!check.ok)
    check.fix = fmt::format(
        "give it at least {} MiB: docker run --shm-size, or in Kubernetes an "
        "emptyDir with medium: Memory there",
        needed >> 20);
  return check;
}

Check CheckModelDir(const std::string& model_dir) {
  Check check{.name = "model_dir"};
  if (model_dir.empty()) {
    check.what = "not set: nothing will be saved";
    return check;
  }
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(model_dir, error);
  while (!error && folder.has_parent_path() && !std::filesystem::exists(folder, error) &&
         folder != folder.parent_path())
    folder = folder.parent_path();
  std::string name = (folder / ".muster-preflight-XXXXXX").string();
  const int fd = error ? -1 : mkstemp(name.data());
  if (fd < 0) {
    check.ok = false;
    check.what = fmt::format("{}: cannot write to {}: {}", model_dir, folder.string(),
                             error ? error.message() : std::strerror(errno));
    check.fix =
        "the chief writes checkpoints and summaries there: give it a folder that it may "
        "write to";
    return check;
  }
  close(fd);
  unlink(name.c_str());
  check.what = fmt::format("{} is writable", model_dir);
  return check;
}

int CountGpus(const std::string& folder) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
        std::all_of(name.begin() + kPrefix.size(), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; }))
      ++count;
  }
  return count;
}

Check CheckGpus(const std::string& devices, int gpus) {
  Check check{.name = "devices"};
  const int needed = launcher::GpusNeeded(devices);
  check.ok = gpus >= needed;
  check.what =
      fmt::format("devices is \"{}\", {} GPU{} on this host", devices, gpus, gpus == 1 ? "" : "s");
  if (!check.ok)
    check.fix = fmt::format(
        "it takes {}: ask for them where the task is started (a Kubernetes "
        "limit nvidia.com/gpu, docker run --gpus, Slurm --gres)",
        needed);
  return check;
}

std::vector<std::string> Lines(const std::vector<Check>& checks) {
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::vector<std::string> lines;
  for (const Check& check : checks) {
    const char* state = !check.ok ? "FAILED" : check.warning ? "warn" : "ok";
    std::string line = fmt::format("{:<6}  {:<{}}  {}", state, check.name, width, check.what);
    if (!check.fix.empty()) line += ": " + check.fix;
    lines.push_back(std::move(line));
  }
  return lines;
}

ExitCode CodeOf(const std::vector<Check>& checks) {
  ExitCode code = ExitCode::kDone;
  for (const Check& check : checks) {
    if (check.ok) continue;
    if (check.configuration) return ExitCode::kConfiguration;
    code = ExitCode::kRetryable;
  }
  return code;
}

}  // namespace muster::preflight
