// Copies of a replica's weights that callbacks keep, such as the best weights or a moving average.
// Each callback has at most one copy. A copy has the parameters, and the buffers that are equal on
// all replicas. It is therefore equal on all replicas. Used by the replica's thread.
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
  // `own` has the replica's tensors. Only PutBack and Swap change them.
  explicit KeptWeights(NamedTensors own) : own_(std::move(own)) {}

  void Keep(const std::string& callback);
  // Copies the kept weights to the replica's tensors. Requires Has(callback).
  void PutBack(const std::string& callback);
  // Exchanges the kept weights and the replica's tensors. Requires Has(callback).
  void Swap(const std::string& callback);
  // Sets kept = decay * kept + (1 - decay) * own for floating-point parameters. Copies buffers and
  // integers. The first call copies everything.
  void Average(const std::string& callback, double decay);

  bool Has(const std::string& callback) const { return kept_.contains(callback); }
  // Returns the kept tensors of these callbacks, in a fixed order. For a callback without kept
  // weights, keeps the current weights first.
  std::vector<at::Tensor> Of(const std::set<std::string>& callbacks);
  // Drops the weights of all callbacks that are not in `callbacks`.
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
