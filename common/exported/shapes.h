// The types and shapes of an exported program's inputs. A dimension has a fixed size, or a symbol
// with a range of sizes. Pure functions.
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

// A dimension, with a fixed size if `symbol` is empty. Shapes checks symbols ("s0"), and the graph
// checks expressions ("2*s0").
struct Dimension {
  int64_t fixed = -1;
  std::string symbol;
};

struct InputShape {
  std::string name;  // The name of the argument of forward().
  at::ScalarType dtype = at::kFloat;
  std::vector<Dimension> dimensions;
};

class Shapes {
 public:
  // `program` is an ExportedProgram of torch's schema. `names` are the graph's placeholders for the
  // user's inputs, in order. Throws Json::exception or c10::Error if the file is damaged.
  Shapes(const Json& program, const std::vector<std::string>& names);

  const std::vector<InputShape>& inputs() const { return inputs_; }
  // Returns an error if an input has no first dimension (the batch), or if no batch size fits all
  // inputs.
  absl::Status CheckBatched() const;
  // Returns the batch sizes that all inputs accept.
  Range batch() const;
  // Checks shape and type of one input. A first dimension of 0 is always accepted. The error says
  // what to do.
  absl::Status Check(size_t input, at::IntArrayRef sizes, at::ScalarType dtype) const;
  // Checks all inputs of a batch. A symbol must have the same size in all inputs.
  absl::Status CheckBatch(const std::vector<at::Tensor>& batch) const;
  // Returns a description for messages, such as "x: float [batch, 1, 28, 28]".
  std::string Describe(size_t input) const;

 private:
  absl::Status Refuse(size_t input, at::IntArrayRef sizes, size_t dimension) const;

  std::vector<InputShape> inputs_;
  std::map<std::string, Range> ranges_;
};

// Returns the error for a batch of `examples` examples that the program does not accept. The error
// says what to do.
absl::Status RefuseBatch(const std::string& path, const Shapes& shapes, int64_t examples);

}  // namespace muster::exported
