// A worker of a parameter-server job. Until no work is left, it leases examples from the chief,
// computes gradients on its one replica and pushes them to the servers. The servers reply with
// parameters. Workers do not communicate with each other. If the chief or a server is lost, the
// worker keeps its state and waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/rpc/channel.h"
#include "common/train/membership.h"
#include "common/transport/data_listener.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {
class TaskMeter;
}

namespace muster::worker {

struct PsWorkerOptions {
  Job job;
  ProgramFactory program;
  std::vector<c10::Device> devices;  // Exactly one device, for the one replica.
  int worker = 0;                    // Index of the task.
  int workers = 1;                   // Number of declared workers.
  int workers_on_host = 1;           // Number of workers that share the cores of this host.
  int servers = 1;                   // Number of ps tasks in the cluster.
  std::string chief_address;         // The address at which the chief serves proto::Leases.
  rpc::ChannelOptions channel;
  TaskMeter* meter = nullptr;  // Measures the steps. Must outlive the worker. May be null.
};

// The objects with which this process reaches its peers. They must outlive Run.
struct PsWorkerPeers {
  Membership* membership = nullptr;
  uint64_t incarnation = 0;  // The membership's incarnation.
  transport::DataListener* listener = nullptr;
};

class PsWorker {
 public:
  // Builds the program and its datasets. Returns a ProgramError, ConfigurationError or DataError.
  static absl::StatusOr<std::unique_ptr<PsWorker>> Make(PsWorkerOptions options);
  virtual ~PsWorker() = default;
  // Joins and works until the job ends. Returns the verdict, as Trainer::Run does. Called once.
  virtual absl::Status Run(const PsWorkerPeers& peers) = 0;
  // Returns whether this process has completed a step. Thread-safe.
  virtual bool has_trained() const = 0;
};

}  // namespace muster::worker
