// Draws a confusion matrix.
#pragma once

#include <vector>

#include "muster/metrics.h"

namespace muster {

// Draws the counts of pairs of a true class and a predicted class. `counts` has the shape [true
// class][predicted class], in row-major order. A cell is darker if its count is a larger fraction
// of the sum of its row. With up to 20 classes, each cell has its count as text, in at most four
// characters: 12000 is "12k".
MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes);

}  // namespace muster
