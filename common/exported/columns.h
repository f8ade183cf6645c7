// Which columns of the job's data are an exported program's inputs. Pure.
#pragma once

#include <vector>

#include "common/exported/shapes.h"
#include "muster/data.h"

namespace muster::exported {

// Indices of the columns of the inputs, in the order of forward()'s arguments, then that of the
// target. They are named as the arguments, and "target"; one input and its target may have any two
// names, in this order. An error names the column that is missing, too many, or of another shape or
// type than the file's.
absl::StatusOr<std::vector<int>> ArrangeColumns(const std::vector<data::Column>& columns,
                                                const Shapes& shapes);

}  // namespace muster::exported
