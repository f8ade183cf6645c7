// Implements launcher::Processes (deploy/launcher/processes/processes.h) for tasks on other hosts,
// with one ssh connection to each host.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/hosts/host_list.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/processes/processes.h"
#include "muster/status.h"

namespace muster::hosts {

struct HostsRequest {
  std::vector<Host> hosts;
  launcher::ClusterSize size;
  std::vector<std::string> ssh = {"ssh"};  // The words of the ssh command (--ssh).
  // The folder of `muster`, `muster-chief`, ... on the hosts. A relative path starts at `folder`.
  std::string bin_dir;
  // The folder on the hosts in which the tasks start. If `folder` is empty, the tasks start in a
  // folder whose name is the digest of the files of `copy`. If `copy` is also empty, the tasks
  // start in the folder that has the same path as the launcher's current folder.
  std::string folder;
  std::vector<std::string> copy;                   // The files and folders of --copy.
  std::vector<std::string> arguments;              // Arguments of every task.
  std::map<std::string, std::string> environment;  // Variables to add for every task.
  std::string key;                                 // The text of a run key file, or "".
  std::string model_dir;                           // Empty: the job writes no files.
  launcher::GpuUse gpus;
};

// REQUIRES: PlaceTasks (host_list.h) accepts `size` and `hosts`. `output` must outlive the result.
std::unique_ptr<launcher::Processes> MakeSshProcesses(HostsRequest request,
                                                      launcher::ProcessOutput& output);

}  // namespace muster::hosts
