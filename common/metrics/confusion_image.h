// Draws a confusion matrix.
#pragma once

#include <vector>

#include "muster/metrics.h"

namespace muster {

// `counts` has the order [true class][predicted class]. A darker cell has a larger fraction of its
// row's counts. With up to 20 classes, a cell also shows its count. Counts from 10000 on are
// abbreviated.
MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes);

}  // namespace muster
