// The implementation of Communicator that all CPU backends share. The implementation handles the
// order of operations, waits, deadlines and errors. A backend implements Engine, which runs the
// operations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/operation.h"
#include "common/flight/flight_recorder.h"

namespace muster::collective {

// Runs operations. One thread at a time calls Run.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string Describe() const = 0;
  // Runs the operation and blocks until it has ended. After an error, the engine does not access
  // the caller's memory, and Run is not called again.
  virtual absl::Status Run(const Operation& operation, MonotonicTime deadline) = 0;
  // Makes a Run in progress return an error within milliseconds. Thread-safe.
  virtual void Wake(const absl::Status& why) = 0;
  // Sends `why` to the peers and closes the connections. Called after the last Run.
  virtual void Close(const absl::Status& why) = 0;
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }
  virtual void set_timeout(Duration /*timeout*/) {}
};

struct CommunicatorOptions {
  int rank = 0, size = 1;
  std::vector<std::string> labels;  // The name of each rank, for messages. May be empty.
  Duration timeout = std::chrono::seconds(60);
  bool progress_thread = false;
  // Records each operation, for `muster explain`. May be null.
  std::shared_ptr<FlightRecorder> recorder;
};

std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<Engine> engine,
                                               CommunicatorOptions options);

// Returns the entry of the flight recorder for an operation that the rank `rank` issues.
CollectiveCall CallOf(const Signature& signature, int rank);
// Returns the engine for a group of one rank.
std::unique_ptr<Engine> MakeAloneEngine();

}  // namespace muster::collective
