// Implements muster/transforms.h: TransformPictures and MixUp.
#include "common/data/transforms/mix_up.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <unordered_map>

#include "common/data/batches.h"
#include "common/data/files/damage.h"
#include "common/data/transforms/picture_steps.h"
#include "common/data/transforms/transform_check.h"
#include "muster/transforms.h"

namespace muster::data {
namespace {

// Makes the random numbers of MixUp independent of those of the example's transforms.
constexpr uint64_t kMixUpSalt = 0x6d6978;  // "mix"

// Returns a standard normal number (G. E. P. Box, M. E. Muller 1958).
double Normal(RandomNumbers* random) {
  const double radius = std::sqrt(-2 * std::log(1 - random->Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random->Uniform());
}

// Returns the logarithm of a gamma-distributed number (G. Marsaglia, W. W. Tsang: A Simple Method
// for Generating Gamma Variables, 2000). For a small alpha, the number itself would underflow to 0.
double LogGamma(double alpha, RandomNumbers* random) {
  if (alpha < 1) {
    const double boost = std::log(1 - random->Uniform()) / alpha;
    return LogGamma(alpha + 1, random) + boost;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal(random), cube = 1 + c * x;
    if (cube <= 0) continue;
    const double v = cube * cube * cube, u = 1 - random->Uniform();
    if (std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

// Returns a number in [0, 1] from Beta(alpha, alpha).
double Lambda(double alpha, RandomNumbers random) {
  const double one = LogGamma(alpha, &random), other = LogGamma(alpha, &random);
  return 1 / (1 + std::exp(other - one));
}

class MixUpDataset final : public Dataset {
 public:
  MixUpDataset(DatasetPtr input, const MixUpColumns& columns, const MixUpOptions& options)
      : input_(std::move(input)), columns_(columns), options_(options) {}

  int64_t size() const override { return input_->size(); }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(Batch batch, GetBatch({index}, context));
    return OnlyExample(std::move(batch));
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    MUSTER_RETURN_IF_ERROR(CheckSized(*this, "mixup"));
    std::vector<int64_t> partners;
    for (const int64_t index : indices) partners.push_back(Before(index));
    Rows rows = RowsOf(indices, partners);
    absl::StatusOr<Batch> read = input_->GetBatch(rows.needed, context);
    if (IsDamage(read.status())) {
      // The caller omits damaged examples. An example with a damaged partner stays unmixed.
      for (size_t i = 0; i < indices.size(); ++i) {
        if (IsDamage(input_->GetBatch({partners[i]}, context).status())) partners[i] = indices[i];
      }
      rows = RowsOf(indices, partners);
      read = input_->GetBatch(rows.needed, context);
    }
    MUSTER_RETURN_IF_ERROR(read.status());
    MUSTER_RETURN_IF_ERROR(
        CheckRows(*read, static_cast<int64_t>(rows.needed.size()), "The dataset below MixUp"));
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor labels, LabelsOf((*read)[columns_.labels]));
    std::vector<Pair> pairs;
    for (size_t i = 0; i < indices.size(); ++i) {
      const double lambda = Lambda(options_.alpha, RandomNumbers(context, indices[i], kMixUpSalt));
      Pair pair = {rows.of.at(indices[i]), rows.of.at(partners[i]), lambda};
      const int64_t own = LabelOf(labels, pair.own);
      if (!IsClass(own)) {
        return DataError(fmt::format("the label of example {} is {}, and mixup has {} classes",
                                     indices[i], own, options_.classes));
      }
      // If the partner's label is invalid, the example stays unmixed. The partner's own row reports
      // the error.
      if (!IsClass(LabelOf(labels, pair.other))) pair.other = pair.own;
      pairs.push_back(pair);
    }
    Batch mixed = *read;
    for (size_t c = 0; c < mixed.size(); ++c) {
      const bool picture = std::find(columns_.pictures.begin(), columns_.pictures.end(), c) !=
                           columns_.pictures.end();
      if (picture) {
        MUSTER_ASSIGN_OR_RETURN(mixed[c], MixPictures((*read)[c], pairs));
      } else if (c == columns_.labels) {
        mixed[c] = MixLabels(labels, pairs);
      } else {
        std::vector<int64_t> own;
        for (const Pair& pair : pairs) own.push_back(pair.own);
        mixed[c] = GatherRows((*read)[c].contiguous(), own);
      }
    }
    return mixed;
  }

 private:
  struct Pair {
    int64_t own, other;  // Row numbers of the batch that was read.
    double lambda;
  };

  // The examples to read, without duplicates, and the row of each.
  struct Rows {
    std::vector<int64_t> needed;
    std::unordered_map<int64_t, int64_t> of;
  };
  static Rows RowsOf(const std::vector<int64_t>& indices, const std::vector<int64_t>& partners) {
    Rows rows;
    for (size_t i = 0; i < indices.size(); ++i) {
      for (const int64_t index : {partners[i], indices[i]}) {
        if (rows.of.emplace(index, static_cast<int64_t>(rows.needed.size())).second)
          rows.needed.push_back(index);
      }
    }
    return rows;
  }

  int64_t Before(int64_t index) const { return index == 0 ? size() - 1 : index - 1; }

  static absl::StatusOr<at::Tensor> MixPictures(const at::Tensor& read,
                                                const std::vector<Pair>& pairs) {
    if (!read.is_floating_point()) {
      return ProgramError(fmt::format(
          "MixUp mixes floating-point pictures, and these are {}: put Normalize before it",
          toString(read.scalar_type())));
    }
    const at::Tensor from = read.to(at::kFloat).contiguous();
    std::vector<int64_t> shape = from.sizes().vec();
    shape[0] = static_cast<int64_t>(pairs.size());
    at::Tensor mixed = at::empty(shape, from.options());
    const int64_t values = pairs.empty() ? 0 : mixed.numel() / shape[0];
    auto* to = mixed.mutable_data_ptr<float>();
    const auto* rows = from.const_data_ptr<float>();
    for (const Pair& pair : pairs) {
      MixFloats(rows + pair.own * values, rows + pair.other * values,
                static_cast<float>(pair.lambda), static_cast<float>(1 - pair.lambda), values, to);
      to += values;
    }
    return mixed;
  }

  static absl::StatusOr<at::Tensor> LabelsOf(const at::Tensor& read) {
    if (read.dim() != 1 || !at::isIntegralType(read.scalar_type(), /*includeBool=*/false)) {
      return ProgramError(
          fmt::format("MixUp needs integer labels of shape [], and these are {} {} a batch",
                      toString(read.scalar_type()), c10::str(read.sizes())));
    }
    return read.to(at::kLong).contiguous();
  }

  static int64_t LabelOf(const at::Tensor& labels, int64_t row) {
    return labels.const_data_ptr<int64_t>()[row];
  }

  bool IsClass(int64_t label) const { return label >= 0 && label < options_.classes; }

  at::Tensor MixLabels(const at::Tensor& labels, const std::vector<Pair>& pairs) const {
    at::Tensor mixed = at::zeros({static_cast<int64_t>(pairs.size()), options_.classes},
                                 at::TensorOptions(at::kFloat));
    auto* to = mixed.mutable_data_ptr<float>();
    for (const Pair& pair : pairs) {
      to[LabelOf(labels, pair.other)] += static_cast<float>(1 - pair.lambda);
      to[LabelOf(labels, pair.own)] += static_cast<float>(pair.lambda);
      to += options_.classes;
    }
    return mixed;
  }

  const DatasetPtr input_;
  const MixUpColumns columns_;
  const MixUpOptions options_;
};

}  // namespace

DatasetPtr MixUpOf(DatasetPtr input, const MixUpColumns& columns, const MixUpOptions& options) {
  return std::make_shared<MixUpDataset>(std::move(input), columns, options);
}

DatasetPtr MixUp(DatasetPtr input, const MixUpOptions& options) {
  if (!IsMixUpAlpha(options.alpha) || options.classes < 1) {
    throw std::invalid_argument(
        fmt::format("MixUp needs an alpha above 0, from 1e-6 to 1e6, and at least 1 class, not {} "
                    "and {}",
                    options.alpha, options.classes));
  }
  return MixUpOf(NotNull(std::move(input), "MixUp"), {{0}, 1}, options);
}

MapFunction TransformPictures(std::vector<Transform> steps, size_t component) {
  const auto refuse = [](const std::vector<Transform>& of, const WrongStep& wrong) {
    throw std::invalid_argument(fmt::format("transform {} ({}): {} {}", wrong.step,
                                            NameOf(of[wrong.step]), wrong.key, wrong.what));
  };
  if (const auto wrong = FindWrongStep(steps)) refuse(steps, *wrong);
  return [steps, component, refuse, apply = PictureSteps(steps)](
             Example example, const Context& context, int64_t index) -> Example {
    const at::Tensor& picture = example.at(component);
    const bool shaped = picture.defined() && picture.dim() == 3 &&
                        (picture.size(0) == 1 || picture.size(0) == 3) && picture.numel() > 0;
    if (!shaped || picture.scalar_type() != at::kByte || !picture.is_cpu()) {
      throw std::invalid_argument(fmt::format(
          "component {} is {} {}, and transforms are for pictures, uint8 [1 or 3, height, width]",
          component, picture.defined() ? toString(picture.scalar_type()) : "undefined",
          picture.defined() ? c10::str(picture.sizes()) : ""));
    }
    at::Tensor out;
    if (const auto wrong = apply.Apply(picture, RandomNumbers(context, index, component), &out))
      refuse(steps, *wrong);
    example[component] = std::move(out);
    return example;
  };
}

}  // namespace muster::data
