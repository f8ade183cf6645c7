#include "common/train/embedding/embedding_bags.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "common/train/embedding/embedding_step.h"

namespace muster {
namespace {

// All bags of a table, concatenated and without padding.
struct FlatBags {
  at::Tensor keys;     // On the host.
  at::Tensor lengths;  // Number of keys in each bag.
  at::Tensor weights;  // Weight of each key, float32. Undefined if there are no weights.
};

std::string Shape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

at::Tensor Whole(const std::vector<int64_t>& numbers) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

// Returns the index of each bag's first key in the flat keys, followed by the number of keys.
std::vector<int64_t> Bounds(const Bags& bags, const std::string& call) {
  std::vector<int64_t> bounds;
  if (!bags.offsets.defined()) {
    if (bags.keys.dim() != 2)
      throw StatusError(ProgramError(
          fmt::format("{} needs keys [bags, length], or keys [n] with offsets, and got keys {} "
                      "without offsets",
                      call, Shape(bags.keys))));
    for (int64_t bag = 0; bag <= bags.keys.size(0); ++bag)
      bounds.push_back(bag * bags.keys.size(1));
    return bounds;
  }
  if (bags.keys.dim() != 1)
    throw StatusError(ProgramError(fmt::format(
        "{} needs keys [n] where there are offsets, and got {}", call, Shape(bags.keys))));
  if (bags.offsets.dim() != 1 || !at::isIntegralType(bags.offsets.scalar_type(), false))
    throw StatusError(
        ProgramError(fmt::format("{} needs integer offsets [bags], and got {} {}", call,
                                 c10::toString(bags.offsets.scalar_type()), Shape(bags.offsets))));
  const at::Tensor host = bags.offsets.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* const offsets = host.const_data_ptr<int64_t>();
  bounds.assign(offsets, offsets + host.numel());
  bounds.push_back(bags.keys.numel());
  if (bounds.front() != 0)
    throw StatusError(ProgramError(
        host.numel() == 0
            ? fmt::format("{} got {} keys and no offsets: no bag has them", call, bounds.front())
            : fmt::format("{}: offsets must begin with 0, where the first bag does, and begin with "
                          "{}",
                          call, bounds.front())));
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i] <= bounds[i + 1]) continue;
    throw StatusError(ProgramError(
        i + 2 == bounds.size()
            ? fmt::format("{}: offset {} of bag {} is beyond the {} keys", call, bounds[i], i,
                          bounds.back())
            : fmt::format("{}: offsets must not descend, and bag {} begins at {}, the one before "
                          "at {}",
                          call, i + 1, bounds[i + 1], bounds[i])));
  }
  return bounds;
}

at::Tensor FlatWeights(const Bags& bags, const at::Device& device, const std::string& call) {
  if (!bags.weights.defined()) return {};
  if (bags.weights.sizes() != bags.keys.sizes())
    throw StatusError(
        ProgramError(fmt::format("{} needs a weight for each key, {}, and got weights {}", call,
                                 Shape(bags.keys), Shape(bags.weights))));
  if (!at::isFloatingType(bags.weights.scalar_type()))
    throw StatusError(ProgramError(fmt::format("{} needs floating-point weights, and got {}", call,
                                               c10::toString(bags.weights.scalar_type()))));
  return bags.weights.to(device, at::kFloat).reshape({-1});
}

FlatBags Flatten(const Replica& replica, const TableBags& of) {
  const at::Tensor host = HostKeys(replica, of.table, of.bags.keys, "lookup");
  const std::string call = fmt::format("lookup(\"{}\")", replica.embeddings()[of.table.index].name);
  const std::vector<int64_t> bounds = Bounds(of.bags, call);
  const at::Tensor weights = FlatWeights(of.bags, replica.device(), call);
  const int64_t* const keys = host.const_data_ptr<int64_t>();
  std::vector<int64_t> lengths, places;
  for (size_t bag = 0; bag + 1 < bounds.size(); ++bag) {
    const size_t before = places.size();
    for (int64_t i = bounds[bag]; i < bounds[bag + 1]; ++i)
      if (!of.bags.padding || keys[i] != *of.bags.padding) places.push_back(i);
    lengths.push_back(static_cast<int64_t>(places.size() - before));
  }
  const at::Tensor on_device = Whole(lengths).to(replica.device());
  if (static_cast<int64_t>(places.size()) == host.numel())
    return {host.reshape({-1}), on_device, weights};
  const at::Tensor kept = Whole(places);
  return {host.reshape({-1}).index_select(0, kept), on_device,
          weights.defined() ? weights.index_select(0, kept.to(replica.device())) : weights};
}

at::Tensor SumOfBags(const at::Tensor& values, const at::Tensor& lengths) {
  return at::segment_reduce(values, "sum", lengths, /*indices=*/{}, /*offsets=*/{}, /*axis=*/0,
                            /*unsafe=*/true, /*initial=*/0);
}

at::Tensor Pool(const FlatBags& bags, Pooling pooling, const at::Tensor& rows) {
  const at::Tensor weighted = bags.weights.defined() ? rows * bags.weights.unsqueeze(1) : rows;
  const at::Tensor sums = SumOfBags(weighted, bags.lengths);
  if (pooling == Pooling::kSum) return sums;
  if (!bags.weights.defined())
    return sums / bags.lengths.clamp_min(1).to(sums.scalar_type()).unsqueeze(1);
  const at::Tensor total = SumOfBags(bags.weights, bags.lengths).unsqueeze(1);
  const at::Tensor nothing = total.eq(0);
  return (sums / total.masked_fill(nothing, 1)).masked_fill(nothing, 0);
}

}  // namespace

std::vector<at::Tensor> LookupBags(
    const Replica& replica, const std::vector<TableBags>& bags,
    const std::function<std::vector<at::Tensor>(const std::vector<TableKeys>&)>& lookup) {
  std::vector<FlatBags> flat;
  std::vector<TableKeys> keys;
  for (const TableBags& of : bags) {
    flat.push_back(Flatten(replica, of));
    keys.push_back({of.table, flat.back().keys});
  }
  std::vector<at::Tensor> rows = lookup(keys);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = Pool(flat[i], bags[i].pooling, rows[i]);
  return rows;
}

}  // namespace muster
