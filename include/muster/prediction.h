// The interface that Muster passes to Program::predict.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "muster/handles.h"
#include "muster/step.h"

namespace muster {

class PredictionImpl;

// One batch of prediction input on one replica. The batch is never empty.
class Prediction {
 public:
  explicit Prediction(PredictionImpl* impl) : impl_(impl) {}
  at::Device device() const;
  // Returns the names of the batch's components. If the input is a folder, the names are its file
  // names without ".npy". They have the order of the job's data if the job has data, and
  // alphabetical order otherwise. If the input is one file or a prompt, the only name is the job's
  // name of its first column, or "x".
  const std::vector<std::string>& columns() const;
  // These functions work as in Step. For a key that was never trained, they return the initial
  // value of a new row.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);

 private:
  PredictionImpl* impl_;
};

}  // namespace muster
