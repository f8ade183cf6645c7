// What one host can check by itself. Nothing that is checked stays changed.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::preflight {

struct Check {
  std::string name;
  bool ok = true;
  std::string what;       // what was found
  std::string mend = "";  // where it failed
  // The configuration is wrong: exit code 2. Else somebody was not reached in time: 138.
  bool configuration = true;
};

// `members_here`: tasks that share this host and train through shared memory.
Check CheckSharedMemory(int members_here, const std::string& folder = "/dev/shm");
// Whether the chief can write there; the folder need not exist.
Check CheckModelDir(const std::string& model_dir);
// Whether `devices` of the job asks for GPUs that this host does not have.
Check CheckGpus(const std::string& devices, int gpus);
// The NVIDIA devices that this process can see.
int CountGpus(const std::string& folder = "/dev");

// "ok      name   what", "FAILED  name   what: mend", a line each.
std::vector<std::string> Lines(const std::vector<Check>& checks);
// 0, 2, or 138.
ExitCode CodeOf(const std::vector<Check>& checks);

}  // namespace muster::preflight
