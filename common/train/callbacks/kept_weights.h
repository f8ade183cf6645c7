// Copies of a replica's weights that callbacks keep, such as the best weights or a moving average.
// A replica is one device's copy of the model. Each callback has at most one copy. A copy has the
// parameters, and the buffers that are equal on all replicas. Each copy is therefore equal on all
// replicas. Used by the replica's thread.
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
  // `own` has the replica's own tensors. Only PutBack and Swap change them.
  explicit KeptWeights(NamedTensors own) : own_(std::move(own)) {}

  // Copies the replica's tensors. The new copy replaces the callback's earlier copy.
  void Keep(const std::string& callback);
  // Copies the kept weights to the replica's tensors. REQUIRES: Has(callback).
  void PutBack(const std::string& callback);
  // Exchanges the kept weights with the replica's tensors. REQUIRES: Has(callback).
  void Swap(const std::string& callback);
  // Updates a moving average. Sets kept = decay * kept + (1 - decay) * own for floating-point
  // parameters that require a gradient, and kept = own for all other tensors. The first call for a
  // callback copies all tensors.
  void Average(const std::string& callback, double decay);

  bool Has(const std::string& callback) const { return kept_.contains(callback); }
  // Returns the kept tensors of `callbacks`, in a fixed order. If a callback has no copy yet, first
  // makes a copy of the current weights for that callback.
  std::vector<at::Tensor> Of(const std::set<std::string>& callbacks);
  // Drops the copies of all callbacks that are not in `callbacks`.
  void Only(const std::set<std::string>& callbacks);
  // Returns the callbacks that have a copy.
  std::set<std::string> callbacks() const;
  const NamedTensors& own() const { return own_; }
  // Returns the kept weights of one callback, under the names of the replica's tensors.
  NamedTensors Of(const std::string& callback) const;

 private:
  const NamedTensors own_;
  std::map<std::string, std::vector<at::Tensor>> kept_;
};

}  // namespace muster
