// The processes of a launch on other hosts, through one ssh connection for each host.
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
  std::vector<std::string> ssh = {"ssh"};  // The command that connects.
  // The folder of `muster`, `muster-chief`, ... on the hosts. Relative: to the folder of the tasks.
  std::string bin_dir;
  // The folder of the tasks on the hosts. Empty: one named by the content of `copy`, or without it
  // the launcher's own.
  std::string folder;
  std::vector<std::string> copy;                   // Files and folders that the hosts get first.
  std::vector<std::string> arguments;              // Of every task.
  std::map<std::string, std::string> environment;  // Additional environment of every task.
  std::string key;                                 // The text of the run key file. "": none.
  std::string model_dir;                           // Empty: the job writes no files.
  launcher::GpuUse gpus;
};

// REQUIRES: PlaceTasks accepts the size and the hosts. `output` must outlive the result.
std::unique_ptr<launcher::Processes> MakeSshProcesses(HostsRequest request,
                                                      launcher::ProcessOutput& output);

}  // namespace muster::hosts
