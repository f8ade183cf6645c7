// The communicator implementation shared by all backends: issue, order, wait, deadline and poison.
// A backend is an Engine behind it. Implement Engine to add a backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/operation.h"
#include "common/flight/flight_recorder.h"

namespace muster::collective {

// Executes operations, one at a time, from one thread at a time.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string Describe() const = 0;
  // Blocks until the operation has ended. After an error the engine touches no caller memory, and
  // Run is not called again.
  virtual absl::Status Run(const Operation& operation, MonotonicTime deadline) = 0;
  // Thread-safe. Makes a Run in progress return an error within milliseconds.
  virtual void Wake(const absl::Status& why) = 0;
  // Sends `why` to the peers and closes the connections. Called after the last Run.
  virtual void Close(const absl::Status& why) = 0;
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }
  virtual void set_timeout(Duration /*timeout*/) {}
};

struct CommunicatorOptions {
  int rank = 0, size = 1;
  std::vector<std::string> labels;  // By rank, for messages. May be empty.
  Duration timeout = std::chrono::seconds(60);
  bool progress_thread = false;
  std::shared_ptr<FlightRecorder> recorder;  // The recorder of this process. May be null.
};

std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<Engine> engine,
                                               CommunicatorOptions options);

// Returns the labels of a communicator made by MakeCommunicator, and nothing for any other
// communicator.
std::vector<std::string> LabelsOf(const Communicator& communicator);
// Returns the recorder of a communicator made by MakeCommunicator and detaches it. The communicator
// records no operations afterwards, because they are parts of another communicator's operations.
std::shared_ptr<FlightRecorder> TakeRecorder(Communicator& communicator);
// Marks all later operations of the communicator as parts of the replicas' operation `asked`. Ranks
// then compare `asked` as well.
void IssueFor(Communicator& communicator, const Signature& asked);
CollectiveCall CallOf(const Signature& signature, int rank);
// Returns the engine for a group of one rank.
std::unique_ptr<Engine> MakeAloneEngine();

}  // namespace muster::collective
