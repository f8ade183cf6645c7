// The input types and shapes of an exported program. Some sizes are fixed. Others are symbols with
// a range. Pure functions of the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

struct Range {
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();
  bool Holds(int64_t n) const { return least <= n && n <= most; }
};

// A dimension, fixed where `symbol` is empty. The graph checks expressions ("2*s0").
struct Dimension {
  int64_t fixed = -1;
  std::string symbol;
};

struct InputShape {
  std::string name;  // Of the argument of forward().
  at::ScalarType dtype = at::kFloat;
  std::vector<Dimension> dimensions;
};

class Shapes {
 public:
  // `program` is torch's ExportedProgram. `names` are the graph's placeholders of the user's
  // inputs, in order. Throws Json::exception or c10::Error where the file is damaged.
  Shapes(const Json& program, const std::vector<std::string>& names);

  const std::vector<InputShape>& inputs() const { return inputs_; }
  // Returns an error that names the input without a first dimension (the batch), or says that no
  // batch size fits all inputs.
  absl::Status CheckBatched() const;
  // Range of examples that all inputs admit in one batch.
  Range batch() const;
  // Checks shape and type of one input. A first dimension of 0 fits every batch size. An error is a
  // sentence that says what to do.
  absl::Status Check(size_t input, at::IntArrayRef sizes, at::ScalarType dtype) const;
  // Checks all inputs of a batch, whose symbols must have equal values.
  absl::Status CheckBatch(const std::vector<at::Tensor>& batch) const;
  // Returns "x: float [batch, 1, 28, 28]", for messages.
  std::string Describe(size_t input) const;

 private:
  absl::Status Refuse(size_t input, at::IntArrayRef sizes, size_t dimension) const;

  std::vector<InputShape> inputs_;
  std::map<std::string, Range> ranges_;
};

// Returns why a batch of `examples` examples is refused, and what to do.
absl::Status RefuseBatch(const std::string& path, const Shapes& shapes, int64_t examples);

}  // namespace muster::exported
