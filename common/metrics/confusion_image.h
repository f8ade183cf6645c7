// Draws a confusion matrix.
#pragma once

#include <vector>

#include "muster/metrics.h"

namespace muster {

// `counts` is [classes][classes]; rows are true classes. A cell is darker the larger its share of
// its row. Up to 20 classes, a cell also shows its count, abbreviated from 10000 on.
MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes);

}  // namespace muster
