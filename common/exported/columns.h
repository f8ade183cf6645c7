// Matches the columns of the job's data with an exported program's inputs. Pure functions.
#pragma once

#include <vector>

#include "common/exported/shapes.h"
#include "muster/data.h"

namespace muster::exported {

// Returns the indices of the columns for the inputs, in the order of forward()'s arguments, then of
// the column for the target. Columns have the names of the arguments, and "target". A single input
// and its target may have any two names, in this order. An error names the column that is missing,
// superfluous, or of a shape or type that differs from the file's.
absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes);

}  // namespace muster::exported
