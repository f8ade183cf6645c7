// A synthetic dataset of clicks for recommender models. Each click is computed from the seed and
// the click's index, so no file is needed. A click has numeric features and eight
// features with integer keys. Five of the eight features have one key, and three have a list of
// keys. Keys have a Zipf distribution: the n-th most common key of a feature occurs 1 / n^zipf
// times as often as the most common key.
#pragma once

#include <muster/data.h>

#include <cstdint>

namespace muster {

struct ClickOptions {
  int64_t keys = 20'000;  // The number of different keys of each feature.
  double zipf = 1.2;
};

inline constexpr int64_t kClickFeatures = 8;  // The number of features with keys.
inline constexpr int64_t kClickLists = 3;     // The number of features with lists of keys.
// The maximum number of keys in a list. The minimum is 1.
inline constexpr int64_t kClickValues = 5;
inline constexpr int64_t kClickDense = 6;  // The number of numeric features.
inline constexpr int64_t kClickPadding = -1;

// Returns the clicks with indices from `first` to first + size - 1. The components of a batch of n
// clicks are:
//   0  dense    [n, kClickDense] float, standard normal
//   1  keys     [n, kClickFeatures - kClickLists] int64, features with one key
//   2  lists    [n, kClickLists, kClickValues] int64, features with lists of keys, padded with
//               kClickPadding
//   3  weights  [n, kClickValues] float, above 0, weights of the last feature's keys
//   4  click    [n] float, 0 or 1
//   5  truth    [n] float, the logit of the probability from which `click` was drawn. No model can
//               have a larger area under the ROC curve than these logits
data::DatasetPtr MakeClicks(const ClickOptions& options, uint64_t seed, int64_t first,
                            int64_t size);

}  // namespace muster
