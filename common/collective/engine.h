// The communicator's front: issue, order, wait, deadline, poison. A backend is an Engine behind
// it, the extension point for further ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
};

std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<Engine> engine,
                                               FrontOptions options);

// Of a communicator made by MakeCommunicator; empty for any other.
std::vector<std::string> LabelsOf(const Communicator& communicator);
// The engine of one rank alone.
std::unique_ptr<Engine> MakeAloneEngine();

}  // namespace muster::collective
