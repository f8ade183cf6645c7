// The communicator's front: issue, order, wait, deadline, poison. A backend is an Engine behind
// it, the extension point for further ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/flight_recorder.h"
#include "common/collective/communicator.h"
#include "common/collective/operation.h"

namespace muster::collective {

// Carries operations out, one at a time, on one thread at a time.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string Describe() const = 0;
  // Blocks. After an error no caller memory is touched any more, and Run is not called again.
  virtual absl::Status Run(const Operation& operation, MonotonicTime deadline) = 0;
  // Any thread: the Run under way, if any, returns an error within milliseconds.
  virtual void Wake(const absl::Status& why) = 0;
  // After the last Run: tells the peers why, closes connections.
  virtual void Close(const absl::Status& why) = 0;
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }
  virtual void set_timeout(Duration /*timeout*/) {}
};

struct FrontOptions {
  int rank = 0, size = 1;
  std::vector<std::string> labels;  // of the ranks, for messages; may be empty
  Duration timeout = std::chrono::seconds(60);
  bool progress_thread = false;
  std::shared_ptr<FlightRecorder> recorder;  // of this process; may be null
};

std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<Engine> engine,
                                               FrontOptions options);

// Of a communicator made by MakeCommunicator; empty for any other.
std::vector<std::string> LabelsOf(const Communicator& communicator);
// The same: what it has recorded its operations with so far. From now on it records none: they are
// parts of another communicator's.
std::shared_ptr<FlightRecorder> TakeRecorder(Communicator& communicator);
// Its operations from now on are parts of the replicas' `asked`, and compared with that too.
void IssueFor(Communicator& communicator, const Signature& asked);
CollectiveCall CallOf(const Signature& signature, int rank);
// The engine of one rank alone.
std::unique_ptr<Engine> MakeAloneEngine();

}  // namespace muster::collective
