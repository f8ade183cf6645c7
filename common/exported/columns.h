// Matches the columns of the job's data with the inputs of an exported program, a file that
// torch.export.save wrote. Pure functions.
#pragma once

#include <vector>

#include "common/exported/graph/shapes.h"
#include "muster/data.h"

namespace muster::exported {

// Returns indices into `columns`: one for each argument of forward(), followed by one for the
// target. Each column must have the name of an argument, or the name "target". A program with one
// input accepts two columns with other names, such as "x" and "y". The first column is then the
// input, and the second column is the target. Returns an error if the names of the columns do not
// match, or if a column has a wrong shape or type.
absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes);

}  // namespace muster::exported
