// The options of `muster launch` that start the tasks on other hosts (docs/hosts.md).
#pragma once

#include <string>
#include <vector>

#include "deploy/hosts/ssh_processes.h"
#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace muster {

class LaunchHosts {
 public:
  // Adds the options to `app`. CLI11 later writes the parsed options into this object. The object
  // must therefore outlive the parsing.
  void Register(CLI::App* app);
  // Returns true if --hosts is set. Without --hosts, the tasks run on this host.
  bool used() const { return !hosts_.empty(); }
  // Returns the request that the options describe. Returns ConfigurationError for an invalid value.
  // Also returns ConfigurationError if an option that requires --hosts is set without --hosts.
  absl::StatusOr<hosts::HostsRequest> Request() const;

 private:
  std::string hosts_, ssh_ = "ssh", folder_;
  std::vector<std::string> copy_, environment_;
  std::vector<CLI::Option*> with_hosts_;  // Options that require --hosts.
};

}  // namespace muster
