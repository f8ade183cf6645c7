// Nested dictionaries of tensors: the values that functions of Step and Loop reduce, gather and
// report.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace muster {

// Either a tensor, or a dictionary from names to values of type Nested:
//   Nested{{"loss", loss}, {"counts", {{"right", right}, {"all", 3}}}}
// Numbers become scalar tensors (without dimensions) of type float64, int64 or bool.
class Nested {
 public:
  using Items = std::map<std::string, Nested>;
  Nested() = default;                      // Makes an empty dictionary.
  Nested(at::Tensor tensor);               // NOLINT(google-explicit-constructor)
  Nested(std::floating_point auto number)  // NOLINT(google-explicit-constructor)
      : Nested(Scalar(static_cast<double>(number))) {}
  Nested(std::integral auto number)  // NOLINT(google-explicit-constructor)
      : Nested(Integer(static_cast<int64_t>(number), std::same_as<decltype(number), bool>)) {}
  Nested(std::initializer_list<std::pair<const std::string, Nested>> items);
  explicit Nested(Items items);

  bool is_tensor() const { return is_tensor_; }
  // tensor() throws an exception if this is a dictionary. items() and operator[] throw an exception
  // if this is a tensor. operator[] also throws an exception if the name is unknown. The exception
  // is a StatusError with a ProgramError (muster/status.h).
  const at::Tensor& tensor() const;
  const Items& items() const;
  const Nested& operator[](const std::string& name) const;

  // Returns a copy in which function(tensor) replaces each tensor. Calls `function` in the
  // alphabetical order of names.
  Nested Map(const std::function<at::Tensor(const at::Tensor&)>& function) const;
  // Calls `visit` with the name of each tensor and the tensor, in the alphabetical order of names.
  // The name of a tensor in a nested dictionary contains the names of all levels: "counts/right".
  void ForEach(const std::function<void(const std::string&, const at::Tensor&)>& visit) const;

 private:
  static at::Tensor Scalar(double number);
  static at::Tensor Integer(int64_t number, bool is_bool);

  bool is_tensor_ = false;
  at::Tensor tensor_;
  Items items_;
};

// A value that may differ between replicas (devices). Each replica has its own PerReplica object,
// which holds the value of this replica.
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(Nested local) : local_(std::move(local)) {}
  const Nested& local() const { return local_; }

 private:
  Nested local_;
};

}  // namespace muster
