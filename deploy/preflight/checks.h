// The checks of `muster preflight` that need only this host. The checks leave no file on the host.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::preflight {

struct Check {
  std::string name;
  bool ok = true;
  std::string what;      // The result of the check.
  std::string fix = "";  // How to fix the problem, or "".
  // True if there is a problem, but the job can run. In this case, `ok` is also true.
  bool warning = false;
  // Only for a failed check (`ok` is false). True if the configuration is wrong (exit code 2).
  // False if another task was not reached in time (exit code 138).
  bool configuration = true;
};

// Checks that `folder` has enough space for shared memory. `members_here` is the number of tasks on
// this host that exchange gradients through shared memory.
Check CheckSharedMemory(int members_here, const std::string& folder = "/dev/shm");
// Checks that the chief can write to `model_dir`, the folder of the job's output. The folder need
// not exist.
Check CheckModelDir(const std::string& model_dir);
// Checks that this host has the GPUs that the job's "devices" require. `gpus` is the number of this
// host's GPUs.
Check CheckGpus(const std::string& devices, int gpus);
// Returns the number of NVIDIA devices that this process can see.
int CountGpus(const std::string& folder = "/dev");

// Returns one line for each check: "ok      name   what", "warn    name   what: fix" or
// "FAILED  name   what: fix".
std::vector<std::string> Lines(const std::vector<Check>& checks);
// Returns the exit code for all checks: 0, 2 or 138.
ExitCode CodeOf(const std::vector<Check>& checks);

}  // namespace muster::preflight
