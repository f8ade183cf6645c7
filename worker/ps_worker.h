// A worker of a parameter-server job: leases examples from the chief, computes gradients over them
// on its one replica, pushes these to the servers, which send parameters back, until no work is
// left. Workers know nothing of each other; the loss of the chief or of a server is waited for with
// all that this process holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/rpc/channel.h"
#include "common/train/job.h"
#include "common/train/membership.h"
#include "common/transport/data_listener.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster {

struct PsWorkerOptions {
  Job job;
  ProgramFactory program;
  std::vector<c10::Device> devices;  // one: a worker of this mode has one replica
  int worker = 0;                    // index of the task
  int workers = 1;                   // declared
  int workers_on_host = 1;           // of those, on this host: they share its cores
  int servers = 1;                   // ps tasks of the cluster
  std::string chief_address;         // where it offers proto::Leases
  rpc::ChannelOptions channel;
};

// What there is once this process has joined, or is about to; outlives Run.
struct PsWorkerPeers {
  Membership* membership = nullptr;
  uint64_t incarnation = 0;  // as the membership tells it
  transport::DataListener* listener = nullptr;
};

class PsWorker {
 public:
  // Builds the program and its datasets. Errors: ProgramError, ConfigurationError, DataError.
  static absl::StatusOr<std::unique_ptr<PsWorker>> Make(PsWorkerOptions options);
  virtual ~PsWorker() = default;
  // Joins, and works to the end of the job. The verdict, as Trainer::Run's. Once.
  virtual absl::Status Run(const PsWorkerPeers& peers) = 0;
  // As Trainer's. Any thread.
  virtual bool has_trained() const = 0;
};

}  // namespace muster
