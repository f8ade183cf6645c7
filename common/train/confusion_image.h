// A confusion matrix as a picture.
#pragma once

#include <vector>

#include "muster/metrics.h"

namespace muster {

// `counts` is [classes][classes], rows are true classes. A cell is the darker, the larger its share
// of its row; up to 20 classes it also shows its count, shortened from 10000 on.
MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes);

}  // namespace muster
