// A worker of a parameter-server job. The worker has one replica (copy of the model) on one device.
// The worker asks the chief for one lease after another until no work is left. A lease is an
// assignment of examples. The worker computes the gradients of these examples and pushes the
// gradients to the parameter servers, which reply with new parameters. Workers do not communicate
// with each other. If the chief or a server is lost, the worker keeps its state and waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/rpc/channel.h"
#include "common/train/membership.h"
#include "common/transport/listener/data_listener.h"
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
  int worker = 0;                    // The index of this worker.
  int workers = 1;                   // Number of workers in the cluster spec.
  int workers_on_host = 1;           // Number of workers that share the cores of this host.
  int servers = 1;                   // Number of ps tasks in the cluster.
  std::string chief_address;         // The address at which the chief serves proto::Leases.
  rpc::ChannelOptions channel;
  TaskMeter* meter = nullptr;  // Measures the steps. Must outlive the worker. May be null.
};

// The objects with which this process reaches other tasks. They must outlive Run.
struct PsWorkerPeers {
  Membership* membership = nullptr;
  uint64_t incarnation = 0;  // The random number that identifies this process to the chief.
  transport::DataListener* listener = nullptr;
};

class PsWorker {
 public:
  // Builds the program and its datasets. Returns a ProgramError, ConfigurationError or DataError.
  static absl::StatusOr<std::unique_ptr<PsWorker>> Make(PsWorkerOptions options);
  virtual ~PsWorker() = default;
  // Joins the job and works until the job ends. Returns OK if the job has completed. If not,
  // returns the error with which this process must end. Must be called once.
  virtual absl::Status Run(const PsWorkerPeers& peers) = 0;
  // Returns whether this process has completed a step. Thread-safe.
  virtual bool has_trained() const = 0;
};

}  // namespace muster::worker
