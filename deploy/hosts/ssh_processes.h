// Runs the processes of a launch on other hosts, over one ssh connection for each host.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/hosts/host_list.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/processes.h"
#include "muster/status.h"

namespace muster::hosts {

struct HostsRequest {
  std::vector<Host> hosts;
  launcher::ClusterSize size;
  std::vector<std::string> ssh = {"ssh"};  // --ssh, split into words.
  // The folder of `muster`, `muster-chief`, ... on the hosts. A relative path starts at the folder
  // of the tasks.
  std::string bin_dir;
  // The folder of the tasks on the hosts. Empty: a folder named by the digest of `copy`, or, if
  // `copy` is empty, the launcher's current folder.
  std::string folder;
  std::vector<std::string> copy;                   // Files and folders of --copy.
  std::vector<std::string> arguments;              // Arguments of every task.
  std::map<std::string, std::string> environment;  // Additional environment of every task.
  std::string key;                                 // The text of the run key file, "" if none.
  std::string model_dir;                           // Empty: the job writes no files.
  launcher::GpuUse gpus;
};

// REQUIRES: PlaceTasks accepts the size and the hosts. `output` must outlive the result.
std::unique_ptr<launcher::Processes> MakeSshProcesses(HostsRequest request,
                                                      launcher::ProcessOutput& output);

}  // namespace muster::hosts
