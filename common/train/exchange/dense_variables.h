// Parameter servers hold the variables of a worker: its parameters and floating-point buffers. For
// each variable, DenseVariables has the position in the client's memory (push_pull/client.h) and
// the state in the current step. No step may change a buffer that the program declares kSame
// (BufferMode). A chunk is a range of a server's memory that belongs to one optimizer. A function
// argument `chunk` is an index into the chunks of all servers.
//
// ParameterExchange owns the object. Used by the replica's thread. Autograd may deliver gradients
// in its own thread, while the replica's thread waits. Other folders use only ChangedSameBuffer.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/push_pull/client.h"
#include "common/train/replica/replica.h"
#include "common/train/state/variables.h"

namespace muster {

class DenseVariables {
 public:
  using What = push_pull::PushPullClient::What;

  // `served` and `layout` must outlive the object.
  DenseVariables(const Replica& replica, const ServedVariables& served,
                 const push_pull::Layout& layout);
  // Returns the result of ParameterExchange::parameters.
  std::vector<std::vector<std::span<float>>> HostMemory() const;
  // Sets the client, which may be null. Sets the client's memory for gradients to 0.
  void UseClient(push_pull::PushPullClient* client);
  // Copies received values to the device. On a CPU replica, tells autograd that the tensors have
  // changed. If `rest` is true, also copies the variables without an optimizer.
  void CopyToDevice(bool rest);
  // Keeps the values of the kSame buffers.
  void KeepSameBuffers();
  // Returns a ProgramError if a kSame buffer differs from its value at the last KeepSameBuffers.
  absl::Status CheckSameBuffers() const;

  void BeginStep();
  // Sends a request for one chunk. As `what` says, the request has a gradient, a difference or
  // nothing (a pull). The response has the new values of the chunk. The response to a pull has
  // values only if they have changed since the last pull. REQUIRES: a push has begun.
  void Launch(int chunk, What what);
  // For each buffer, writes the change during this step to the client's memory. If `weight` is 0,
  // writes zeros. Returns the arguments for the last calls of Launch in the step: pushes of the
  // changed buffers, pulls of the unchanged buffers, and pulls of the optimizers' chunks that were
  // not launched in this step.
  std::vector<std::pair<int, What>> WriteDifferences(double weight);
  // `chunks` has the chunks that servers refused, as pairs (server, index). Adds to `names` the
  // tables in these chunks, and the other variables in these chunks whose pushed values are not
  // finite. Called while the pushed values are still in the client's memory.
  void AddNotFinite(const std::set<std::pair<int, int>>& chunks,
                    std::set<std::string>* names) const;

  // The functions below handle one optimizer's gradients. gradient_sink.h explains reductions.
  const std::vector<at::Tensor>& parameters(int optimizer) const {
    return parameters_of_[optimizer];
  }
  // Indexed by parameter: the index of its variable. -1 if the parameter has no elements.
  const std::vector<int>& variables(int optimizer) const { return variable_of_[optimizer]; }
  void BeginReduction(int optimizer);
  void BeginBackward(int optimizer);  // Begins a micro-batch.
  // Copies `gradient` to the client's memory, or adds it to the values there if `add` is true.
  void Write(int variable, const at::Tensor& gradient, bool add);
  // Records that the variable has its gradient in this micro-batch. Returns the chunks whose
  // gradients are now all complete.
  std::vector<int> Complete(int variable);
  // Sets the client's memory of variables without a gradient to 0. Returns the chunks that have a
  // gradient and are not launched yet.
  std::vector<int> CompleteAll(int optimizer);
  // Returns true if the variable has a gradient in this reduction.
  bool used(int variable) const { return variables_[variable].used; }
  // Returns true if a chunk of the variable was launched in this reduction.
  bool launched(int variable) const;
  // Returns the client's memory of the variables with a gradient, one tensor for each part.
  std::vector<at::Tensor> Written(int optimizer) const;

 private:
  // A part of a variable. A server holds each part in one piece of memory.
  struct PartMemory {
    // The range of rows in the variable's first dimension. A 0-dimensional variable has one row.
    int64_t first_row = 0, rows = 0;
    int64_t begin = 0;        // Index of the first element in the variable's memory.
    std::span<float> memory;  // The client's memory for the gradient of this part.
    at::Tensor view;          // `memory` as a tensor with the variable's strides.
  };
  struct Variable {
    // The replica's own tensor, and its copy on the CPU. On a CPU replica, both are the same
    // tensor.
    at::Tensor tensor, host;
    std::vector<PartMemory> parts;
    std::vector<int> chunks;  // Indices into chunks_.
    bool used = false;        // True if the variable has a gradient in this reduction.
    // True for a floating-point buffer that is not declared kSame. The worker pushes its changes.
    bool buffer = false;
    at::Tensor before;  // The value of a buffer at the start of the step.
    // True for a buffer whose values are at least 0 before and after the step.
    bool floor = false;
    // True for a buffer that is declared kSame. `before` is then the value at the last pull. Before
    // the first pull, `before` is undefined.
    bool same = false;
  };
  // A chunk, and its state in the current step.
  struct ChunkPlace {
    push_pull::Chunk chunk;
    int index = 0;               // Index of the chunk within its server.
    std::vector<int> variables;  // Indices into variables_.
    int pending = 0;             // Variables whose gradient is missing in this micro-batch.
    bool used = false;           // True if a variable of the chunk has a gradient.
    bool launched = false;       // True if the chunk was pushed or pulled in this reduction.
    bool fresh = false;          // True if the chunk was pushed or pulled in this step.
    bool buffers = false;        // True if a variable of the chunk is a buffer.
  };

  // The constructor calls the functions from AddChunks to AddPart. AddChunks returns, for each
  // server, the indices into chunks_ of the server's chunks.
  std::vector<std::vector<int>> AddChunks();
  // Maps the address of a variable's first element to an index into variables_.
  using VariablesByMemory = std::map<const void*, int>;
  VariablesByMemory AddVariables();
  // Sets the fields `buffer`, `before` and `same` of the variables.
  void MarkBuffers(const Replica& replica, const VariablesByMemory& by_memory);
  // Sets variable_of_ and parameters_of_.
  void FindParameters(const Replica& replica, const VariablesByMemory& by_memory);
  // Adds a part to its variable, and the variable to the chunks that overlap the part. `of_server`
  // has the indices of the chunks on the part's server.
  void AddPart(const push_pull::VariablePart& part, const std::vector<int>& of_server);
  // Writes (value before the step) - (current value) to the client's memory. The servers subtract
  // this difference. Returns false if the buffer is unchanged or `weight` is 0.
  bool WriteDifference(double weight, Variable* variable);

  const ServedVariables& served_;
  const push_pull::Layout& layout_;
  push_pull::PushPullClient* client_ = nullptr;
  std::vector<Variable> variables_;  // Indexed like ServedVariables::specs. A table has no parts.
  std::vector<ChunkPlace> chunks_;
  // Indexed by the program's optimizer: the indices of its chunks.
  std::vector<std::vector<int>> chunks_of_;
  std::vector<int> rest_;  // The indices of the chunks without an optimizer.
  std::vector<std::vector<at::Tensor>> parameters_of_;  // Indexed by optimizer.
  // Indexed by optimizer, then by parameter: the index into variables_. -1 if the parameter has no
  // elements.
  std::vector<std::vector<int>> variable_of_;
};

// Returns the error for a program that changed the buffer `name`, which is declared kSame.
absl::Status ChangedSameBuffer(const std::string& name);

}  // namespace muster
