// Finds the columns of the job's data for the inputs of an exported program. Pure functions.
#pragma once

#include <vector>

#include "common/exported/shapes.h"
#include "muster/data.h"

namespace muster::exported {

// Returns the index of the column for each argument of forward(), then the index of the column for
// the target. Columns have the names of the arguments and "target". If the program has one input,
// two columns of any names are the input and the target, in this order. The error names the column
// that is missing or superfluous, or has another shape or type than the file requires.
absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes);

}  // namespace muster::exported
