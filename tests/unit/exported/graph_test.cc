#include "common/exported/graph/graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "common/exported/graph/source_line.h"
#include "tests/unit/exported/test_file.h"

namespace muster::exported {
namespace {

using c10::IValue;
using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const Graph> Compile(TestFile& file) {
  auto graph = Graph::Compile(file.graph(), c10::kCPU, "model.pt2");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *graph;
}
at::Tensor RunOne(TestFile& file, std::vector<IValue> inputs, Phase phase = Phase::kTrain) {
  return Compile(file)->Run(std::move(inputs), phase).at(0).toTensor();
}
at::Tensor Counted(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).reshape(sizes);
}

TEST(ExportedGraph, NumbersPromoteAsInPython) {
  TestFile file;
  file.Input("x", {-1})
      .Aten("mul.Tensor", {{"self", Value("x")}, {"other", Float(0.5)}}, "y")
      .Output("y");
  const at::Tensor half = RunOne(file, {at::ones({3}, at::kHalf)});
  EXPECT_EQ(half.scalar_type(), at::kHalf);  // a tensor of float64 beside it would widen it
  EXPECT_EQ(RunOne(file, {at::ones({3}, at::kLong)}).scalar_type(), at::kFloat);
}

TEST(ExportedGraph, EveryKindOfArgument) {
  TestFile file;
  file.Input("x", {-1, 4});
  file.Node("torch.ops.aten.sym_size.int", {{"self", Value("x")}, {"dim", Int(0)}}, {Size("n")});
  file.Node("_operator.mul", {{"a", Size("n")}, {"b", Int(2)}}, {Size("m")});
  // as_sym_ints with names and numbers, as_none, an int where the operator wants int[].
  file.Aten(
      "view.default",
      {{"self", Value("x")}, {"size", {{"as_sym_ints", {{{"as_name", "m"}}, {{"as_int", 2}}}}}}},
      "flat");
  file.Aten("sum.dim_IntList", {{"self", Value("flat")}, {"dim", Int(1)}, {"keepdim", Bool(true)}},
            "sum");
  // as_scalar_type (7: float32, 8: float64), as_device, as_layout, as_memory_format.
  file.Aten("full.default",
            {{"size", {{"as_sym_ints", {{{"as_name", "m"}}, {{"as_int", 1}}}}}},
             {"fill_value", {{"as_float", "-Infinity"}}},
             {"dtype", {{"as_scalar_type", 8}}},
             {"layout", {{"as_layout", 7}}},
             {"device", {{"as_device", {{"type", "cuda"}, {"index", 0}}}}},
             {"pin_memory", Bool(false)}},
            "low");
  file.Aten("clone.default", {{"self", Value("low")}, {"memory_format", {{"as_memory_format", 1}}}},
            "copy");
  file.Aten("maximum.default", {{"self", Value("sum")}, {"other", Value("copy")}}, "most");
  // as_tensors in and out, as_optional_tensors.
  file.Node("torch.ops.aten.split.Tensor",
            {{"self", Value("most")}, {"split_size", Size("n")}, {"dim", Int(0)}},
            {Values({"first", "second"})});
  file.Aten("cat.default", {{"tensors", Values({"second", "first"})}, {"dim", Int(1)}}, "both");
  file.Aten(
      "arange.start_step",
      {{"start", Int(1)}, {"end", Int(-1)}, {"step", Int(-1)}, {"dtype", {{"as_scalar_type", 5}}}},
      "order");
  file.Aten(
      "index.Tensor",
      {{"self", Value("both")},
       {"indices",
        {{"as_optional_tensors", {{{"as_none", true}}, {{"as_tensor", {{"name", "order"}}}}}}}}},
      "swapped");
  file.Aten("gelu.default", {{"self", Value("swapped")}, {"approximate", {{"as_string", "none"}}}},
            "z");
  file.Output("swapped").Output("z");
  const auto outputs = Compile(file)->Run({Counted({3, 4})}, Phase::kTrain);
  // Sums of pairs 1, 5, 9 | 13, 17, 21, side by side again in their order.
  const at::Tensor expected = at::tensor({1., 13., 5., 17., 9., 21.}, at::kDouble).reshape({3, 2});
  EXPECT_TRUE(at::equal(outputs[0].toTensor(), expected)) << outputs[0].toTensor();
  EXPECT_EQ(outputs[1].toTensor().scalar_type(), at::kDouble);
}

TEST(ExportedGraph, OutputsThatNobodyUsesAndNone) {
  TestFile file;
  file.Input("x", {-1, 4});
  file.Node("torch.ops.aten.max.dim", {{"self", Value("x")}, {"dim", Int(1)}},
            {Value("values"), Value("max_unused_1")});
  file.Output("values");
  EXPECT_TRUE(at::equal(RunOne(file, {Counted({2, 4})}), at::tensor({3., 7.}, at::kFloat)));
}

TEST(ExportedGraph, ChecksOfTheTraceAreMade) {
  TestFile file;
  file.Input("x", {-1});
  file.Node("torch.ops.aten.sym_size.int", {{"self", Value("x")}, {"dim", Int(0)}}, {Size("n")});
  file.Node("_operator.le", {{"a", Size("n")}, {"b", Int(4)}},
            {{{"as_sym_bool", {{"as_name", "small"}}}}});
  file.Node("torch.ops.aten._assert_scalar.default",
            {{"self", {{"as_sym_bool", {{"as_name", "small"}}}}},
             {"assert_msg", {{"as_string", "n <= 4"}}}},
            {});
  file.Node("torch.ops.aten._assert_tensor_metadata.default",
            {{"a", Value("x")}, {"dtype", {{"as_scalar_type", 8}}}}, {});
  file.Output("x");
  EXPECT_EQ(RunOne(file, {at::ones({4})}).size(0), 4);
  try {
    RunOne(file, {at::ones({5})});
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("_assert_scalar"), HasSubstr("n <= 4")));
  }
}

TEST(ExportedGraph, DropoutIsForTraining) {
  TestFile file;
  file.Input("x", {-1, 4});
  file.Aten("dropout.default", {{"input", Value("x")}, {"p", Float(0.5)}, {"train", Bool(true)}},
            "y");
  file.Node("torch.ops.aten.native_dropout.default",
            {{"input", Value("y")}, {"p", Float(0.5)}, {"train", Bool(true)}},
            {Value("z"), Value("mask")});
  file.Output("z");
  const at::Tensor x = at::ones({64, 4});
  EXPECT_FALSE(at::equal(RunOne(file, {x}), x));
  EXPECT_TRUE(at::equal(RunOne(file, {x}, Phase::kEvaluate), x));
}

TEST(ExportedGraph, AttentionsDropoutIsForTraining) {
  TestFile file;
  file.Input("x", {-1, 1, 8, 4});
  file.Aten("scaled_dot_product_attention.default",
            {{"query", Value("x")},
             {"key", Value("x")},
             {"value", Value("x")},
             {"attn_mask", None()},
             {"dropout_p", Float(0.5)}},
            "y");
  file.Output("y", 4);
  const at::Tensor x = Counted({2, 1, 8, 4}) / 64;
  EXPECT_FALSE(at::equal(RunOne(file, {x}), RunOne(file, {x})));
  EXPECT_TRUE(at::equal(RunOne(file, {x}, Phase::kEvaluate), RunOne(file, {x}, Phase::kEvaluate)));
}

TestFile BatchNorm(bool training, bool statistics) {
  TestFile file;
  file.Buffer("mean", at::zeros({2})).Buffer("var", at::ones({2})).Input("x", {-1, 2});
  file.Aten("batch_norm.default",
            {{"input", Value("x")},
             {"weight", None()},
             {"bias", None()},
             {"running_mean", statistics ? Value("b_mean") : None()},
             {"running_var", statistics ? Value("b_var") : None()},
             {"training", Bool(training)},
             {"momentum", Float(0.1)},
             {"eps", Float(0)},
             {"cudnn_enabled", Bool(false)}},
            "y");
  file.Output("y");
  return file;
}

TEST(ExportedGraph, BatchNormalisationUsesItsStatisticsInEvaluation) {
  const at::Tensor x = Counted({4, 2});
  at::Tensor mean = at::zeros({2}), var = at::ones({2});
  TestFile training = BatchNorm(true, true);
  EXPECT_TRUE(at::equal(RunOne(training, {mean, var, x}, Phase::kEvaluate), x));
  EXPECT_TRUE(at::equal(mean, at::zeros({2})));  // not written
  EXPECT_NEAR(RunOne(training, {mean, var, x}).sum().item<double>(), 0, 1e-5);
  EXPECT_NEAR(mean[0].item<double>(), 0.3, 1e-6);  // a tenth of (0 + 2 + 4 + 6) / 4
  // Statistics that the file freezes stay frozen. Without statistics, those of the batch are used.
  TestFile frozen = BatchNorm(false, true);
  EXPECT_TRUE(at::equal(RunOne(frozen, {at::zeros({2}), at::ones({2}), x}), x));
  TestFile none = BatchNorm(true, false);
  EXPECT_NEAR(
      RunOne(none, {at::zeros({2}), at::ones({2}), x}, Phase::kEvaluate).sum().item<double>(), 0,
      1e-5);
}

TEST(ExportedGraph, WritesAreKnownThroughViews) {
  TestFile file;
  file.Buffer("a", at::zeros({4})).Buffer("b", at::zeros({4})).Input("x", {-1});
  file.Aten("slice.Tensor",
            {{"self", Value("b_a")}, {"dim", Int(0)}, {"start", Int(0)}, {"end", Int(2)}}, "view");
  file.Aten("add_.Tensor", {{"self", Value("view")}, {"other", Int(1)}}, "written");
  file.Aten("add.Tensor", {{"self", Value("b_b")}, {"other", Int(1)}}, "sum");
  file.Aten("mul_.Tensor", {{"self", Value("sum")}, {"other", Value("b_a")}}, "product");
  file.Output("product");
  const auto graph = Compile(file);
  ASSERT_EQ(graph->written().size(), 1u);
  EXPECT_THAT(graph->written().begin()->second, HasSubstr("add_"));
  EXPECT_EQ(graph->written().begin()->first, 0);
}

TEST(ExportedGraph, InputsThatAnOutputDependsOn) {
  TestFile file;
  file.Parameter("used", at::ones({2}))
      .Parameter("other", at::ones({2}))
      .Parameter("unused", at::ones({2}))
      .Input("x", {-1, 2});
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_used")}}, "y");
  file.Aten("add.Tensor", {{"self", Value("y")}, {"other", Value("p_other")}}, "z");
  file.Output("y").Output("z");
  const auto graph = Compile(file);
  EXPECT_THAT(graph->Reaching({0}), testing::ElementsAre(0, 3));
  EXPECT_THAT(graph->Reaching({1}), testing::ElementsAre(0, 1, 3));
}

// LibTorch's memory on the CPU, counted while it lives.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }

  c10::DataPtr allocate(size_t bytes) override {
    live_ += static_cast<int64_t>(bytes);
    most_ = std::max(most_, live_);
    auto* block = new Block{this, static_cast<int64_t>(bytes), inner_->allocate(bytes)};
    return {block->memory.get(), block,
            [](void* context) {
              auto* ended = static_cast<Block*>(context);
              ended->owner->live_ -= ended->bytes;
              delete ended;
            },
            c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  int64_t most() const { return most_; }

 private:
  static constexpr uint8_t kPriority = 100;
  struct Block {
    CountingAllocator* owner;
    int64_t bytes;
    c10::DataPtr memory;
  };
  c10::Allocator* const inner_;
  int64_t live_ = 0, most_ = 0;
};

// The graph holds two values of a chain of twenty values of 1 MiB at a time: one that is read and
// one that is made.
TEST(ExportedGraph, ValuesAreFreedWhileItRuns) {
  TestFile file;
  file.Input("x", {-1});
  std::string last = "x";
  for (int i = 0; i < 20; ++i) {
    const std::string next = fmt::format("v{}", i);
    file.Aten("add.Tensor", {{"self", Value(last)}, {"other", Int(1)}}, next);
    last = next;
  }
  file.Output(last);
  const auto graph = Compile(file);
  const at::NoGradGuard no_grad;
  constexpr int64_t kElements = 1 << 18;
  CountingAllocator memory;
  {
    std::vector<IValue> inputs = {at::zeros({kElements})};
    const auto outputs = graph->Run(std::move(inputs), Phase::kTrain);
    EXPECT_EQ(outputs[0].toTensor()[0].item<double>(), 20);
  }
  EXPECT_GE(memory.most(), 2 * kElements * 4);
  EXPECT_LT(memory.most(), 3 * kElements * 4);
}

Json Sub(TestFile& graph) { return {{"as_graph", {{"name", "sub"}, {"graph", graph.graph()}}}}; }

TEST(ExportedGraph, GradientsOffInARegion) {
  TestFile inner;
  inner.Input("a", {-1})
      .Aten("mul.Tensor", {{"self", Value("a")}, {"other", Int(3)}}, "b")
      .Output("b");
  TestFile file;
  file.Input("x", {-1});
  file.Node("torch.ops.higher_order.wrap_with_set_grad_enabled",
            {{"", Bool(false)}, {"", Sub(inner)}, {"", Value("x")}}, {Value("y")});
  file.Aten("add.Tensor", {{"self", Value("y")}, {"other", Value("x")}}, "z");
  file.Output("y").Output("z");
  at::Tensor x = at::ones({2});
  x.requires_grad_(true);
  const auto outputs = Compile(file)->Run({x}, Phase::kTrain);
  EXPECT_FALSE(outputs[0].toTensor().requires_grad());
  EXPECT_TRUE(outputs[1].toTensor().requires_grad());
  EXPECT_EQ(outputs[1].toTensor()[0].item<double>(), 4);
}

TEST(ExportedGraph, AutocastInARegion) {
  TestFile inner;
  inner.Input("a", {2, 2})
      .Aten("matmul.default", {{"self", Value("a")}, {"other", Value("a")}}, "b")
      .Output("b");
  TestFile file;
  file.Input("x", {2, 2});
  file.Node("torch.ops.higher_order.wrap_with_autocast",
            {{"", {{"as_string", "cpu"}}},
             {"", {{"as_scalar_type", 13}}},
             {"", Bool(true)},
             {"", Bool(false)},
             {"", Sub(inner)},
             {"", Value("x")}},
            {Value("y")});
  file.Aten("matmul.default", {{"self", Value("x")}, {"other", Value("x")}}, "z");
  file.Output("y").Output("z");
  const auto outputs = Compile(file)->Run({at::ones({2, 2})}, Phase::kTrain);
  EXPECT_EQ(outputs[0].toTensor().scalar_type(), at::kBFloat16);
  EXPECT_EQ(outputs[1].toTensor().scalar_type(), at::kFloat);
}

TEST(ExportedGraph, OneOfTwoBranches) {
  TestFile yes, no;
  yes.Input("a", {-1})
      .Aten("add.Tensor", {{"self", Value("a")}, {"other", Int(1)}}, "b")
      .Output("b");
  no.Input("a", {-1})
      .Aten("sub.Tensor", {{"self", Value("a")}, {"other", Int(1)}}, "b")
      .Output("b");
  TestFile file;
  file.Input("x", {-1});
  file.Aten("sum.default", {{"self", Value("x")}}, "sum");
  file.Aten("gt.Scalar", {{"self", Value("sum")}, {"other", Int(0)}}, "positive");
  file.Node("torch.ops.higher_order.cond",
            {{"", Value("positive")}, {"", Sub(yes)}, {"", Sub(no)}, {"", Values({"x"})}},
            {Value("y")});
  file.Output("y");
  EXPECT_EQ(RunOne(file, {at::ones({2})})[0].item<double>(), 2);
  EXPECT_EQ(RunOne(file, {-at::ones({2})})[0].item<double>(), -2);
}

constexpr char kTrace[] =
    "File \"train.py\", line 12, in forward\n    y = torch.nms(x)\n"
    "  File \"/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py\", line 5, in forward\n  "
    "  return F";

std::string GraphRefusal(TestFile& file, ExitCode code = ExitCode::kConfiguration) {
  const auto graph = Graph::Compile(file.graph(), c10::kCPU, "model.pt2");
  EXPECT_FALSE(graph.ok());
  EXPECT_EQ(ExitCodeOf(graph.status()), code) << graph.status();
  return std::string(Message(graph.status()));
}

TEST(ExportedGraph, WhatCannotRunIsNamedWithTheLineAndAMend) {
  TestFile unknown;
  unknown.Input("x", {-1})
      .Node("torch.ops.torchvision.nms.default", {{"dets", Value("x")}}, {Value("y")}, kTrace)
      .Output("y");
  EXPECT_THAT(GraphRefusal(unknown),
              AllOf(HasSubstr("model.pt2 cannot run here: torchvision.nms.default (train.py, line "
                              "12, in forward: y = torch.nms(x))"),
                    HasSubstr("no such operator"), HasSubstr("run_decompositions")));
  unknown.Node("torch.ops.a.b.default", {}, {Value("w")});
  EXPECT_THAT(GraphRefusal(unknown), HasSubstr("(and 1 more)"));

  TestFile higher;
  higher.Input("x", {-1})
      .Node("torch.ops.higher_order.scan", {{"", Value("x")}}, {Value("y")})
      .Output("y");
  EXPECT_THAT(GraphRefusal(higher), HasSubstr("scan"));
  TestFile object;
  object.Input("x", {-1})
      .Aten("relu.default", {{"self", {{"as_custom_obj", {{"name", "o"}}}}}}, "y")
      .Output("y");
  EXPECT_THAT(GraphRefusal(object), HasSubstr("as_custom_obj"));
  TestFile arithmetic;
  arithmetic.Input("x", {-1}).Node("_operator.matmul", {}, {Size("y")}).Output("x");
  EXPECT_THAT(GraphRefusal(arithmetic), HasSubstr("_operator.matmul"));
  TestFile missing;
  missing.Input("x", {-1}).Aten("relu.default", {}, "y").Output("y");
  EXPECT_THAT(GraphRefusal(missing), HasSubstr("argument self is missing"));
  TestFile extra;
  extra.Input("x", {-1})
      .Aten("relu.default", {{"self", Value("x")}, {"slope", Int(1)}}, "y")
      .Output("y");
  EXPECT_THAT(GraphRefusal(extra), HasSubstr("no argument slope"));
}

TEST(ExportedGraph, AGraphThatMakesNoSenseIsDamaged) {
  TestFile dangling;
  dangling.Input("x", {-1}).Aten("relu.default", {{"self", Value("nobody")}}, "y").Output("y");
  EXPECT_THAT(GraphRefusal(dangling, ExitCode::kDataDamaged),
              HasSubstr("there is no value nobody"));
  TestFile twice;
  twice.Input("x", {-1}).Aten("relu.default", {{"self", Value("x")}}, "x").Output("x");
  EXPECT_THAT(GraphRefusal(twice, ExitCode::kDataDamaged), HasSubstr("two values are named x"));
  TestFile keys;
  keys.Input("x", {-1});
  keys.graph().erase("nodes");
  EXPECT_THAT(GraphRefusal(keys, ExitCode::kDataDamaged), HasSubstr("nodes"));
}

// On the device of the trace the strides allowed it.
TEST(ExportedGraph, AViewThatTheStridesDoNotAllowIsACopy) {
  TestFile file;
  file.Input("x", {-1, 3});
  file.Aten("view.default", {{"self", Value("x")}, {"size", {{"as_sym_ints", {{{"as_int", -1}}}}}}},
            "flat");
  file.Output("flat");
  const at::Tensor x = Counted({2, 3});
  const at::Tensor flat = RunOne(file, {x});
  EXPECT_TRUE(at::equal(flat, x.reshape({6})));
  EXPECT_TRUE(flat.is_alias_of(x)) << "where they allow it, it is a view";
  EXPECT_TRUE(at::equal(RunOne(file, {Counted({3, 2}).t()}), Counted({3, 2}).t().reshape({6})));
}

TEST(ExportedGraph, AnErrorInARunNamesOperatorAndLine) {
  TestFile file;
  file.Input("x", {-1, 4}).Input("y", {-1, 3});
  file.Node("torch.ops.aten.add.Tensor", {{"self", Value("x")}, {"other", Value("y")}},
            {Value("z")}, kTrace);
  file.Output("z");
  try {
    RunOne(file, {at::ones({2, 4}), at::ones({2, 3})});
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aten.add.Tensor (train.py, line 12"),
                                    HasSubstr("size of tensor")));
  }
}

TEST(SourceLine, IsTheInnermostThatIsTheUsers) {
  EXPECT_EQ(SourceLine({{"stack_trace", kTrace}}),
            "train.py, line 12, in forward: y = torch.nms(x)");
  EXPECT_EQ(SourceLine({{"stack_trace", "File \"torch/fx/x.py\", line 2, in f"}}),
            "torch/fx/x.py, line 2, in f");
  EXPECT_EQ(SourceLine(Json::object()), "");
  EXPECT_EQ(SourceLine({{"stack_trace", 3}}), "");
}

}  // namespace
}  // namespace muster::exported
