// Matches the columns of the job's data with the inputs of an exported program, a file that
// torch.export.save wrote. Pure functions.
#pragma once

#include <vector>

#include "common/exported/graph/shapes.h"
#include "muster/data.h"

namespace muster::exported {

// Returns indices into `columns`: one index for each argument of forward(), and then one index for
// the target. Each column must have the name of an argument, or the name "target". If the program
// has one input, two columns may have other names, such as "x" and "y". The first of these columns
// is then the input, and the second column is the target. Returns an error if the names do not
// match, or if the column of an argument has a wrong shape or type.
absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes);

}  // namespace muster::exported
