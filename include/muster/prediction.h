// The interface that Program::predict uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "muster/handles.h"
#include "muster/step.h"

namespace muster {

class PredictionImpl;

// One batch of an input on one replica. Never empty.
class Prediction {
 public:
  explicit Prediction(PredictionImpl* impl) : impl_(impl) {}
  at::Device device() const;
  // Returns the names of the batch's components. If the input is a folder, these are its file names
  // without ".npy": in the order of the job's data if the job has data, else alphabetically. If the
  // input is one file or a prompt, this is the job's name for its first column, or "x".
  const std::vector<std::string>& columns() const;
  // As in Step. A key that was never trained returns the initial value of a new row.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);

 private:
  PredictionImpl* impl_;
};

}  // namespace muster
