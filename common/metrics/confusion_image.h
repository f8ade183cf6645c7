// Draws a confusion matrix.
#pragma once

#include <vector>

#include "muster/metrics.h"

namespace muster {

// Returns the image of a confusion matrix. `counts` has the shape [true class][predicted class], in
// row-major order. A cell is darker if its count is a larger fraction of the sum of its row. With
// up to 20 classes, each cell shows its count as text of at most four characters. For example, the
// text of 12000 is "12k".
MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes);

}  // namespace muster
