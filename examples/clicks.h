// A synthetic dataset of clicks for recommender models. Each click is a function of (seed, index),
// so a dataset of any size needs no file. Eight features are keys from a Zipf distribution: the
// n-th most common key of a feature is 1 / n^zipf times as frequent as the most common one. Three
// of the features are lists of keys.
#pragma once

#include <muster/data.h>

#include <cstdint>

namespace muster {

struct ClickOptions {
  int64_t keys = 20'000;  // The number of different keys of each feature.
  double zipf = 1.2;
};

inline constexpr int64_t kClickFeatures = 8;  // The last kClickLists of these features are lists.
inline constexpr int64_t kClickLists = 3;
// The longest length of a list. The shortest length is 1.
inline constexpr int64_t kClickValues = 5;
inline constexpr int64_t kClickDense = 6;  // The number of numeric features.
inline constexpr int64_t kClickPadding = -1;

// Returns clicks [first, first + size) of an infinite sequence. Components:
//   0  dense    [n, kClickDense] float, standard normal
//   1  keys     [n, kClickFeatures - kClickLists] int64, features with one key
//   2  lists    [n, kClickLists, kClickValues] int64, features with lists of keys, padded with
//               kClickPadding
//   3  weights  [n, kClickValues] float, above 0, weights of the last feature's keys
//   4  click    [n] float, 0 or 1
//   5  truth    [n] float, the logit of the probability from which `click` was drawn. No model has
//               a larger area under the ROC curve than these logits
data::DatasetPtr MakeClicks(const ClickOptions& options, uint64_t seed, int64_t first,
                            int64_t size);

}  // namespace muster
