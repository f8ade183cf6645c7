// Weights that callbacks remember, such as the best weights or a moving average, with one entry for
// each callback. An entry copies a replica's parameters, and the buffers that are equal on all
// replicas. The entries are therefore equal on all replicas too. Used by the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster {

class KeptWeights {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  // `own` are the replica's tensors. Only PutBack and Swap change them.
  explicit KeptWeights(NamedTensors own) : own_(std::move(own)) {}

  void Keep(const std::string& callback);
  // Copies the kept weights to the replica's tensors. Requires Has(callback).
  void PutBack(const std::string& callback);
  // Exchanges the kept weights and the replica's tensors. Requires Has(callback).
  void Swap(const std::string& callback);
  // kept = decay * kept + (1 - decay) * own. The first call makes a copy. Only floating-point
  // parameters are averaged; buffers and integers are copied.
  void Average(const std::string& callback, double decay);

  bool Has(const std::string& callback) const { return kept_.contains(callback); }
  // Returns the kept tensors of these callbacks in a fixed order. Keeps the current weights for
  // each callback that has none yet.
  std::vector<at::Tensor> Of(const std::set<std::string>& callbacks);
  // Drops the weights of all other callbacks.
  void Only(const std::set<std::string>& callbacks);
  std::set<std::string> callbacks() const;
  const NamedTensors& own() const { return own_; }
  // Returns the kept weights under the names of the replica's tensors.
  NamedTensors Of(const std::string& callback) const;

 private:
  const NamedTensors own_;
  std::map<std::string, std::vector<at::Tensor>> kept_;
};

}  // namespace muster
