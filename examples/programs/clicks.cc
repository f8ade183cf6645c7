#include "clicks.h"

#include <ATen/Functions.h>

#include <array>
#include <cmath>

#include "generated.h"

namespace muster {
namespace {

constexpr int kFactors = 4;  // The size of a hidden vector.
using Vector = std::array<float, kFactors>;

class Clicks : public GeneratedDataset {
 public:
  Clicks(const ClickOptions& options, uint64_t seed, int64_t first, int64_t size)
      : GeneratedDataset(size), options_(options), seed_(Random(seed).Next()), first_(first) {
    Random random(~seed_);
    for (float& weight : dense_) weight = random.Normal();
    for (Vector& direction : directions_)
      for (float& weight : direction) weight = random.Normal();
  }

  absl::StatusOr<data::Batch> GetBatch(const std::vector<int64_t>& indices,
                                       const data::Context&) const override {
    const auto n = static_cast<int64_t>(indices.size());
    constexpr int64_t kSingles = kClickFeatures - kClickLists;
    data::Batch batch = {at::empty({n, kClickDense}),
                         at::empty({n, kSingles}, at::kLong),
                         at::full({n, kClickLists, kClickValues}, kClickPadding, at::kLong),
                         at::ones({n, kClickValues}),
                         at::empty({n}),
                         at::empty({n})};
    for (int64_t i = 0; i < n; ++i) {
      Write(first_ + indices[i],
            {batch[0].mutable_data_ptr<float>() + i * kClickDense,
             batch[1].mutable_data_ptr<int64_t>() + i * kSingles,
             batch[2].mutable_data_ptr<int64_t>() + i * kClickLists * kClickValues,
             batch[3].mutable_data_ptr<float>() + i * kClickValues,
             batch[4].mutable_data_ptr<float>() + i, batch[5].mutable_data_ptr<float>() + i});
    }
    return batch;
  }

 private:
  struct Place {
    float* dense;
    int64_t *keys, *lists;
    float *weights, *click, *truth;
  };
  // The contribution of a value to the logit: `alone`, and the products of `factors` with those of
  // other features.
  struct Effect {
    float alone = 0;
    Vector factors{};
    void Add(const Effect& other, float weight) {
      alone += weight * other.alone;
      for (int k = 0; k < kFactors; ++k) factors[k] += weight * other.factors[k];
    }
  };

  // Draws a rank. Inverts the distribution function of the density 1 / x^zipf on [1, keys + 1).
  int64_t Rank(Random& random) const {
    const double u = random.Unit(), most = static_cast<double>(options_.keys) + 1;
    const double s = 1 - options_.zipf;
    const double x =
        std::abs(s) < 1e-6 ? std::pow(most, u) : std::pow(u * (std::pow(most, s) - 1) + 1, 1 / s);
    return std::min(static_cast<int64_t>(x) - 1, options_.keys - 1);
  }
  // Returns the key of a rank, a number of 63 bits that looks like a hash.
  int64_t Key(int feature, int64_t rank) const {
    return static_cast<int64_t>(
        Random(seed_ + static_cast<uint64_t>(feature) * 0x10001 + static_cast<uint64_t>(rank) * 31)
            .Next() >>
        1);
  }
  static Effect EffectOf(int64_t key) {
    Random random(static_cast<uint64_t>(key));
    Effect effect;
    effect.alone = random.Uniform();
    for (float& factor : effect.factors) factor = random.Uniform();
    return effect;
  }

  void Write(int64_t index, const Place& to) const {
    Random random(seed_ ^ Random(static_cast<uint64_t>(index)).Next());
    std::array<Effect, kClickFeatures> effects;
    for (int f = 0; f < kClickFeatures; ++f) {
      const int list = f - static_cast<int>(kClickFeatures - kClickLists);
      if (list < 0) {
        to.keys[f] = Key(f, Rank(random));
        effects[f] = EffectOf(to.keys[f]);
        continue;
      }
      const auto count = 1 + static_cast<int64_t>(random.Next() % kClickValues);
      const bool weighted = list + 1 == kClickLists;
      float total = 0;
      std::array<float, kClickValues> weights;
      for (int64_t v = 0; v < count; ++v) {
        to.lists[list * kClickValues + v] = Key(f, Rank(random));
        weights[v] = weighted ? 0.25f + 1.5f * random.Unit() : 1;
        if (weighted) to.weights[v] = weights[v];
        total += weights[v];
      }
      for (int64_t v = 0; v < count; ++v)
        effects[f].Add(EffectOf(to.lists[list * kClickValues + v]), weights[v] / total);
    }
    float dense = 0;
    for (int d = 0; d < kClickDense; ++d) {
      to.dense[d] = random.Normal();
      dense += dense_[d] * to.dense[d];
    }
    *to.truth = Logit(dense, effects);
    *to.click = random.Unit() < 1 / (1 + std::exp(-*to.truth)) ? 1 : 0;
  }

  // Returns the logit. The sum of the products of all pairs is (sum^2 - sum of squares) / 2.
  float Logit(float dense, const std::array<Effect, kClickFeatures>& effects) const {
    float alone = 0, products = 0;
    for (const Effect& effect : effects) alone += effect.alone;
    for (int k = 0; k < kFactors; ++k) {
      float sum = 0, squares = 0;
      for (int f = 0; f < kClickFeatures; ++f) {
        const float factor = directions_[f][k] > 0 ? effects[f].factors[k] : -effects[f].factors[k];
        sum += factor;
        squares += factor * factor;
      }
      products += (sum * sum - squares) / 2;
    }
    return -1 + 0.3f * dense + 0.6f * alone + 0.04f * products;
  }

  const ClickOptions options_;
  const uint64_t seed_;
  const int64_t first_;
  std::array<float, kClickDense> dense_;
  std::array<Vector, kClickFeatures> directions_;  // Only the signs count.
};

}  // namespace

data::DatasetPtr MakeClicks(const ClickOptions& options, uint64_t seed, int64_t first,
                            int64_t size) {
  return std::make_shared<Clicks>(options, seed, first, size);
}

}  // namespace muster
