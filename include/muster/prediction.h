// The interface that Muster passes to Program::predict.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "muster/handles.h"
#include "muster/step.h"

namespace muster {

class PredictionImpl;

// Gives Program::predict the properties of its input batch. The batch is never empty.
class Prediction {
 public:
  explicit Prediction(PredictionImpl* impl) : impl_(impl) {}
  at::Device device() const;
  // Returns the names of the batch's components, in order. If the input of `muster predict` is a
  // folder, the names are the file names without ".npy", in the order of the columns in the job's
  // "data". Without "data", the order is alphabetical. For a single file, the name is the first
  // column in the job's "data" that is not "target", or "x" without "data". For a prompt, the name
  // is "x". If encode() returns several tensors, the names are "0", "1" and so on.
  const std::vector<std::string>& columns() const;
  // These functions return rows of embedding tables, in the same way as Step::lookup. The row of a
  // key that was never trained has its initial value.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);

 private:
  PredictionImpl* impl_;
};

}  // namespace muster
