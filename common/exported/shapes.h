// What an exported program takes: types and shapes, of which some sizes are fixed and others, named
// by symbols, lie in a range. Pure functions of the file.
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

// Of one dimension: fixed where `symbol` is empty. An expression ("2*s0") is checked by the graph.
struct Dimension {
  int64_t fixed = -1;
  std::string symbol;
};

struct InputShape {
  std::string name;  // of the argument of forward()
  at::ScalarType dtype = at::kFloat;
  std::vector<Dimension> dimensions;
};

class Shapes {
 public:
  // `program` is torch's ExportedProgram; `names` are the graph's placeholders of the user's
  // inputs, in order. Throws Json::exception or c10::Error where the file is damaged.
  Shapes(const Json& program, const std::vector<std::string>& names);

  const std::vector<InputShape>& inputs() const { return inputs_; }
  // An error names the input that has no first dimension, which would be the batch, or says that no
  // batch goes with all of them.
  absl::Status CheckBatched() const;
  // Numbers of examples that all inputs admit in one batch.
  Range batch() const;
  // Shape and type of one input. `example`: without its first dimension, the batch. An error is a
  // sentence that names the mend.
  absl::Status Check(size_t input, at::IntArrayRef sizes, at::ScalarType dtype) const;
  // All of a batch, whose symbols must agree with each other too.
  absl::Status CheckBatch(const std::vector<at::Tensor>& batch) const;
  // "x: float [batch, 1, 28, 28]" for messages.
  std::string Describe(size_t input) const;

 private:
  absl::Status Refuse(size_t input, at::IntArrayRef sizes, size_t dimension) const;

  std::vector<InputShape> inputs_;
  std::map<std::string, Range> ranges_;
};

// Why a batch of so many examples is refused, and what to do.
absl::Status RefuseBatch(const std::string& path, const Shapes& shapes, int64_t examples);

}  // namespace muster::exported
