// The types and shapes of an exported program's inputs. A dimension has a fixed size, or a symbol
// such as "s0" with a range of sizes. Dimensions with the same symbol have the same size.
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

struct Dimension {
  int64_t fixed = -1;  // The size, if `symbol` is empty.
  // A symbol ("s0") or an expression ("2*s0"). Shapes checks only symbols. Assertions in the graph
  // check expressions.
  std::string symbol;
};

struct InputShape {
  std::string name;  // The name of the argument of forward().
  at::ScalarType dtype = at::kFloat;
  std::vector<Dimension> dimensions;
};

class Shapes {
 public:
  // `program` is an ExportedProgram of torch/_export/serde/schema.py. `names` lists the graph's
  // names of the arguments of forward(), in order. Throws Json::exception or c10::Error if the file
  // is damaged.
  Shapes(const Json& program, const std::vector<std::string>& names);

  const std::vector<InputShape>& inputs() const { return inputs_; }
  // Returns an error if an input has no dimension, or if no batch size is valid for all inputs. The
  // first dimension of each input is the batch.
  absl::Status CheckBatched() const;
  // Returns the batch sizes that all inputs accept.
  Range batch() const;
  // Checks the shape and the type of one input. A first dimension of 0 is always valid. The error
  // message tells the user what to do.
  absl::Status Check(size_t input, at::IntArrayRef sizes, at::ScalarType dtype) const;
  // Checks all inputs of a batch. A symbol must have the same size in all inputs.
  absl::Status CheckBatch(const std::vector<at::Tensor>& batch) const;
  // Returns the input's type and shape for messages, such as "Float [1 or more, 1, 28, 28]".
  std::string Describe(size_t input) const;

 private:
  absl::Status Refuse(size_t input, at::IntArrayRef sizes, size_t dimension) const;

  std::vector<InputShape> inputs_;
  std::map<std::string, Range> ranges_;
};

// Returns the error for a replica's batch of `examples` examples, a number that the program does
// not accept. `path` is the program's file. The error message tells the user what to do.
absl::Status RefuseBatch(const std::string& path, const Shapes& shapes, int64_t examples);

}  // namespace muster::exported
