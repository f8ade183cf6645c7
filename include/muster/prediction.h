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
  // folder, the names are the folder's file names without ".npy". The names have the order of the
  // columns in the job's "data", or alphabetical order if the job has no "data". One file has the
  // first column name in the job's "data" that is not "target", or "x" without "data". A prompt has
  // the name "x", or "0", "1" and so on if encode() returns several tensors.
  const std::vector<std::string>& columns() const;
  // These functions return rows of embedding tables, as the functions of Step with this name do.
  // For a key that was never trained, the row has its initial value.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);

 private:
  PredictionImpl* impl_;
};

}  // namespace muster
