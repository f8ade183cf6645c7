// Values that cross replicas: tensors, or dictionaries of them as deep as one likes.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace muster {

// A tensor, or a dictionary from names to Nested:
//   Nested{{"loss", loss}, {"counts", {{"right", right}, {"all", 3}}}}
// Numbers become tensors without dimensions: float64, int64, bool.
class Nested {
 public:
  using Items = std::map<std::string, Nested>;
  Nested() = default;                      // a dictionary without items
  Nested(at::Tensor tensor);               // NOLINT(google-explicit-constructor)
  Nested(std::floating_point auto number)  // NOLINT(google-explicit-constructor)
      : Nested(Scalar(static_cast<double>(number))) {}
  Nested(std::integral auto number)  // NOLINT(google-explicit-constructor)
      : Nested(Integer(static_cast<int64_t>(number), std::same_as<decltype(number), bool>)) {}
  Nested(std::initializer_list<std::pair<const std::string, Nested>> items);
  explicit Nested(Items items);

  bool is_tensor() const { return is_tensor_; }
  // A ProgramError is thrown by the first for a dictionary, by the others for a tensor and for a
  // name that is not there.
  const at::Tensor& tensor() const;
  const Items& items() const;
  const Nested& operator[](const std::string& name) const;

  // The same with each tensor replaced, in the order of names.
  Nested Map(const std::function<at::Tensor(const at::Tensor&)>& function) const;
  // Each tensor of a dictionary, in the order of names: those on the way joined by '/'.
  void ForEach(const std::function<void(const std::string&, const at::Tensor&)>& visit) const;

 private:
  static at::Tensor Scalar(double number);
  static at::Tensor Integer(int64_t number, bool is_bool);

  bool is_tensor_ = false;
  at::Tensor tensor_;
  Items items_;
};

// What this replica holds of a value that each replica has of its own.
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(Nested local) : local_(std::move(local)) {}
  const Nested& local() const { return local_; }

 private:
  Nested local_;
};

}  // namespace muster
