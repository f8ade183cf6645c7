// Clicks that are generated when they are asked for, as a function of (seed, index), so that there
// is no file, whatever the size. Eight features are keys, drawn with a Zipf distribution: the n-th
// commonest key of a feature comes about 1 / n^zipf as often as the commonest one. Three of them
// have several values.
#pragma once

#include <muster/data.h>

#include <cstdint>

namespace muster {

struct ClickOptions {
  int64_t keys = 20'000;  // different ones of each feature
  double zipf = 1.2;
};

inline constexpr int64_t kClickFeatures = 8;  // the last kClickLists of them are lists
inline constexpr int64_t kClickLists = 3;
inline constexpr int64_t kClickValues = 5;  // of a list, at most; it has at least one
inline constexpr int64_t kClickDense = 6;   // numbers
inline constexpr int64_t kClickPadding = -1;

// Clicks [first, first + size) of the endless row of them. Components:
//   0  dense    [n, kClickDense] float, standard normal
//   1  keys     [n, kClickFeatures - kClickLists] of the features with one value
//   2  lists    [n, kClickLists, kClickValues] of the others, padded with kClickPadding
//   3  weights  [n, kClickValues] float, above 0, of the last feature's values
//   4  click    [n] float, 0 or 1
//   5  truth    [n] float, the logit that the click was drawn with: no model's area under the ROC
//               curve comes above that of these
data::DatasetPtr MakeClicks(const ClickOptions& options, uint64_t seed, int64_t first,
                            int64_t size);

}  // namespace muster
