#include "common/exported/graph/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "common/exported/columns.h"
#include "common/exported/program.h"
#include "tests/unit/exported/test_file.h"

namespace muster::exported {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Model>> ModelOf(TestFile& file) {
  auto archive = ReadArchive(file.Write(), "");
  EXPECT_TRUE(archive.ok()) << archive.status();
  return Model::Make(*archive, c10::kCPU);
}
std::unique_ptr<Model> MakeOk(TestFile& file) {
  auto model = ModelOf(file);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}
std::string ModelRefusal(TestFile& file) {
  const auto model = ModelOf(file);
  EXPECT_EQ(ExitCodeOf(model.status()), ExitCode::kConfiguration) << model.status();
  return std::string(Message(model.status()));
}

// y = x * scale + count, count += 1 in place, as batch normalisation's counter.
TestFile Counting() {
  TestFile file;
  file.Parameter("layers.0.scale", at::ones({2}))
      .Parameter("layers.0.other", at::ones({3}))
      .Buffer("count", at::zeros({}))
      .Input("x", {-1, 2});
  file.Aten("add_.Tensor", {{"self", Value("b_count")}, {"other", Int(1)}}, "added");
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_layers_0_scale")}}, "y");
  file.Aten("add.Tensor", {{"self", Value("y")}, {"other", Value("b_count")}}, "z");
  file.Output("z");
  return file;
}

TEST(ExportedModel, NamesAreThoseOfTheStateDict) {
  TestFile file = Counting();
  const auto model = MakeOk(file);
  std::vector<std::string> parameters, buffers;
  for (const auto& item : model->module()->named_parameters()) parameters.push_back(item.key());
  for (const auto& item : model->module()->named_buffers()) buffers.push_back(item.key());
  EXPECT_THAT(parameters, ElementsAre("layers.0.scale", "layers.0.other"));
  EXPECT_THAT(buffers, ElementsAre("count"));
}

TEST(ExportedModel, WrittenBuffersChangeInTrainingOnly) {
  TestFile file = Counting();
  const auto model = MakeOk(file);
  const at::Tensor count = *model->module()->named_buffers().find("count");
  const at::Tensor x = at::ones({3, 2});
  EXPECT_EQ(model->Forward({x}, Phase::kTrain, 0)[0][0].item<double>(), 2);
  EXPECT_EQ(count.item<double>(), 1);
  // In evaluation the graph sees what it writes itself, and nothing stays.
  EXPECT_EQ(model->Forward({x}, Phase::kEvaluate, 0)[0][0].item<double>(), 3);
  EXPECT_EQ(model->Predict({x}, 0)[0][0].item<double>(), 3);
  EXPECT_EQ(count.item<double>(), 1);
}

TEST(ExportedModel, DamageOfTheSignatureIsNamed) {
  TestFile file = Counting();
  for (const Json& spec : {Json::object(), Json::array(), Json(nullptr)}) {
    file.OutputSpec(spec);
    const auto model = ModelOf(file);
    EXPECT_EQ(ExitCodeOf(model.status()), ExitCode::kDataDamaged);
    EXPECT_THAT(model.status().message(), HasSubstr("an output is no union"));
  }
  TestFile deep = Counting();
  std::string name = "n";
  for (int level = 0; level < 10'000; ++level) name += ".n";
  deep.Parameter(name, at::ones({1}));
  const auto model = ModelOf(deep);
  EXPECT_EQ(ExitCodeOf(model.status()), ExitCode::kDataDamaged);
  EXPECT_THAT(model.status().message(), HasSubstr("levels"));
}

TEST(ExportedModel, SomeBatchFits) {
  TestFile file = Counting();
  EXPECT_THAT(ModelRefusal(file.Range("s0", 5, 4)), HasSubstr("no number of examples"));
  EXPECT_THAT(ModelRefusal(file.Range("s0", 0, 0)), HasSubstr("no number of examples"));
}

TEST(ExportedModel, BuffersThatAreOutputsAreWrittenBack) {
  TestFile file;
  file.Buffer("count", at::zeros({})).Parameter("w", at::ones({2})).Input("x", {-1, 2});
  file.Aten("add.Tensor", {{"self", Value("b_count")}, {"other", Int(1)}}, "next");
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_w")}}, "y");
  file.Output("next", 0).OutputSpec(
      {{"buffer_mutation", {{"arg", {{"name", "next"}}}, {"buffer_name", "count"}}}});
  file.Output("y");
  const auto model = MakeOk(file);
  const at::Tensor count = *model->module()->named_buffers().find("count");
  EXPECT_EQ(model->output_count(), 1u);
  EXPECT_EQ(model->Forward({at::ones({3, 2})}, Phase::kTrain, 0).sizes(), at::IntArrayRef({3, 2}));
  model->Forward({at::ones({3, 2})}, Phase::kEvaluate, 0);
  EXPECT_EQ(count.item<double>(), 1);
}

TEST(ExportedModel, TwoModelsOfOneFileShareNoMemory) {
  TestFile file = Counting();
  const auto archive = ReadArchive(file.Write(), "");
  const auto first = Model::Make(*archive, c10::kCPU), second = Model::Make(*archive, c10::kCPU);
  (*first)->Forward({at::ones({3, 2})}, Phase::kTrain, 0);
  EXPECT_EQ((*second)->module()->named_buffers().find("count")->item<double>(), 0);
  const at::NoGradGuard no_grad;
  (*first)->module()->named_parameters()["layers.0.scale"].fill_(5);
  EXPECT_EQ((*second)->module()->named_parameters()["layers.0.scale"][0].item<double>(), 1);
}

TEST(ExportedModel, AnEmptySliceGivesZeroGradientsToWhatTheOutputNeeds) {
  TestFile file = Counting();
  const auto model = MakeOk(file);
  const at::Tensor nothing = model->Zero(0).expand({0});
  torch::autograd::backward({nothing.sum()}, {});
  const auto parameters = model->module()->named_parameters();
  EXPECT_TRUE(at::equal(parameters["layers.0.scale"].grad(), at::zeros({2})));
  EXPECT_FALSE(parameters["layers.0.other"].grad().defined());
}

TEST(ExportedModel, TiedWeightsAreOneParameterUnderTwoNames) {
  TestFile file;
  file.Parameter("a", at::ones({2})).Tied("b", "a").Input("x", {-1, 2});
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_a")}}, "y");
  file.Aten("mul.Tensor", {{"self", Value("y")}, {"other", Value("p_b")}}, "z");
  file.Output("z");
  const auto model = MakeOk(file);
  const auto parameters = model->module()->named_parameters();
  EXPECT_TRUE(parameters["a"].is_same(parameters["b"]));
  torch::autograd::backward({model->Forward({at::ones({1, 2})}, Phase::kTrain, 0).sum()}, {});
  EXPECT_EQ(parameters["a"].grad()[0].item<double>(), 2);
}

TEST(ExportedModel, WhatIsFrozenInTheFileIsNotTrained) {
  TestFile file;
  file.Parameter("w", at::ones({2}), /*requires_grad=*/false).Input("x", {-1, 2});
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_w")}}, "y").Output("y");
  const auto model = MakeOk(file);
  EXPECT_FALSE(model->module()->named_parameters()["w"].requires_grad());
  EXPECT_THROW(model->Zero(0), c10::Error);
}

// Fixed to four examples: evaluation takes any number, each example once and by itself.
TEST(ExportedModel, EvaluationInPiecesThatTheFileAdmits) {
  TestFile file;
  file.Parameter("w", at::ones({2})).Input("x", {4, 2});
  file.Aten("mul.Tensor", {{"self", Value("x")}, {"other", Value("p_w")}}, "y");
  file.Aten("view.default", {{"self", Value("y")}, {"size", Ints({4, 2})}}, "z").Output("z");
  const auto model = MakeOk(file);
  for (const int64_t examples : {1, 2, 4, 5, 8, 11}) {
    const at::Tensor x = at::arange(examples * 2, at::kFloat).reshape({examples, 2});
    EXPECT_TRUE(at::equal(model->Predict({x}, 0), x)) << examples;
  }
  EXPECT_THAT(std::string(Message(RefuseBatch("model.pt2", model->shapes(), 3))),
              AllOf(HasSubstr("exactly 4 examples"), HasSubstr("torch.export.Dim")));
}

TEST(ExportedShapes, WhatDoesNotFitIsRefusedWithAMend) {
  TestFile file;
  file.Parameter("w", at::ones({2}))
      .Input("x", {-1, 2, -2})
      .Input("mask", {-1, -2}, at::kLong)
      .Range("s1", 2, 8);
  file.Output("x", 3);
  const auto model = MakeOk(file);
  const Shapes& shapes = model->shapes();
  EXPECT_EQ(shapes.batch().least, 1);
  EXPECT_TRUE(shapes.CheckBatch({at::ones({5, 2, 3}), at::ones({5, 3}, at::kLong)}).ok());
  // Types that hold the values are converted: 64 bits to 32, whole numbers to real ones.
  EXPECT_TRUE(shapes.Check(0, {5, 2, 3}, at::kDouble).ok());
  EXPECT_TRUE(shapes.Check(0, {5, 2, 3}, at::kByte).ok());
  EXPECT_TRUE(shapes.Check(1, {5, 3}, at::kInt).ok());
  EXPECT_THAT(std::string(Message(shapes.Check(1, {5, 3}, at::kFloat))),
              HasSubstr("its input mask is Float"));
  EXPECT_THAT(std::string(Message(shapes.Check(0, {5, 4, 3}, at::kFloat))),
              AllOf(HasSubstr("[5, 4, 3]"), HasSubstr("[1 or more, 2, 2 to 8]"),
                    HasSubstr("dynamic_shapes={\"x\": {1:")));
  EXPECT_THAT(std::string(Message(shapes.Check(0, {5, 2, 9}, at::kFloat))),
              HasSubstr("{2: torch.export.Dim"));
  EXPECT_FALSE(shapes.Check(0, {5, 2}, at::kFloat).ok());
  EXPECT_THAT(
      std::string(Message(shapes.CheckBatch({at::ones({5, 2, 3}), at::ones({5, 4}, at::kLong)}))),
      HasSubstr("its input mask has 4 in dimension 1"));
}

TEST(ExportedModel, WhatItMayNotWriteToIsNamed) {
  TestFile input;
  input.Parameter("w", at::ones({2})).Input("x", {-1, 2});
  input.Aten("sub_.Tensor", {{"self", Value("x")}, {"other", Int(1)}}, "y").Output("y");
  EXPECT_THAT(
      ModelRefusal(input),
      AllOf(HasSubstr("sub_"), HasSubstr("changes the input x in place"), HasSubstr("x.clone()")));
  TestFile parameter;
  parameter.Parameter("w", at::ones({2})).Input("x", {-1, 2});
  parameter.Aten("mul_.Tensor", {{"self", Value("p_w")}, {"other", Int(2)}}, "y").Output("y");
  EXPECT_THAT(ModelRefusal(parameter), HasSubstr("writes to the parameter w"));
  TestFile constant;
  constant.Buffer("cache", at::ones({2}), /*persistent=*/false).Input("x", {-1, 2});
  constant.Aten("mul_.Tensor", {{"self", Value("b_cache")}, {"other", Int(2)}}, "y").Output("y");
  EXPECT_THAT(ModelRefusal(constant),
              AllOf(HasSubstr("writes to cache"), HasSubstr("persistent buffer")));
  TestFile functional;
  functional.Parameter("w", at::ones({2})).Input("x", {-1, 2});
  functional.Output("x").OutputSpec(
      {{"user_input_mutation", {{"arg", {{"name", "x"}}}, {"user_input_name", "x"}}}});
  EXPECT_THAT(ModelRefusal(functional), HasSubstr("changes the input x in place"));
}

TEST(ExportedModel, InputsAndOutputsThatItCannotServe) {
  TestFile number;
  number.Parameter("w", at::ones({2})).Input("x", {-1, 2}).Output("x");
  number.signature()["input_specs"][1] = {{"user_input", {{"arg", Size("n")}}}};
  EXPECT_THAT(ModelRefusal(number), HasSubstr("its input number 1 is no tensor"));
  TestFile scalar;
  scalar.Parameter("w", at::ones({2})).Input("x", {}).Output("x");
  EXPECT_THAT(ModelRefusal(scalar), HasSubstr("its input x has no dimension"));
  TestFile loss = Counting();
  loss.Aten("mean.default", {{"self", Value("z")}}, "loss").Output("loss", 0);
  const auto model = MakeOk(loss);
  EXPECT_TRUE(model->CheckOutput(0).ok());
  EXPECT_THAT(std::string(Message(model->CheckOutput(1))), HasSubstr("output 1 is a scalar"));
  EXPECT_THAT(std::string(Message(model->CheckOutput(2))), HasSubstr("gives 2 outputs"));
}

TEST(ExportedColumns, AreFoundByName) {
  TestFile file;
  file.Input("left", {-1, 2}).Input("right", {-1, 3}, at::kLong).Output("left");
  const auto model = MakeOk(file);
  const data::Column left{"left", at::kFloat, {2}}, right{"right", at::kInt, {3}};
  const data::Column target{"target", at::kLong, {}};
  const Shapes& shapes = model->shapes();
  EXPECT_THAT(ArrangeColumns({target, right, left}, shapes).value(), ElementsAre(2, 1, 0));
  const auto refusal = [&](const std::vector<data::Column>& columns) {
    const auto order = ArrangeColumns(columns, shapes);
    EXPECT_EQ(ExitCodeOf(order.status()), ExitCode::kConfiguration);
    return std::string(Message(order.status()));
  };
  EXPECT_THAT(refusal({left, right}), HasSubstr("needs the columns left, right, target"));
  EXPECT_THAT(refusal({left, right, target, {"weight", at::kFloat, {}}}), HasSubstr("weight"));
  EXPECT_THAT(refusal({{"left", at::kFloat, {4}}, right, target}), HasSubstr("[batch, 4]"));
  EXPECT_THAT(refusal({left, {"right", at::kFloat, {3}}, target}),
              HasSubstr("input right is Float"));
}

TEST(ExportedColumns, OfOneInputMayHaveAnyNames) {
  TestFile file;
  file.Input("image", {-1, 2}).Output("image");
  const auto model = MakeOk(file);
  const auto order = [&](const std::string& first, const std::string& second) {
    return ArrangeColumns({{first, at::kFloat, {2}}, {second, at::kFloat, {2}}}, model->shapes())
        .value();
  };
  EXPECT_THAT(order("x", "y"), ElementsAre(0, 1));
  EXPECT_THAT(order("image", "label"), ElementsAre(0, 1));
  EXPECT_THAT(order("label", "image"), ElementsAre(1, 0));
  EXPECT_THAT(order("target", "x"), ElementsAre(1, 0));
}

TEST(ExportedProgram, TheJobsObjectIsChecked) {
  TestFile file = Counting();
  const std::string path = file.Write();
  EXPECT_TRUE(MakeExportedProgram({{"exported", path},
                                   {"loss", "mean_squared_error"},
                                   {"metrics", {"mean_absolute_error"}}})
                  .ok());
  const auto refusal = [](const Json& json) {
    const auto program = MakeExportedProgram(json);
    EXPECT_EQ(ExitCodeOf(program.status()), ExitCode::kConfiguration) << json;
    return std::string(Message(program.status()));
  };
  EXPECT_THAT(refusal({{"exported", path}}), HasSubstr("program.loss is missing"));
  EXPECT_THAT(refusal({{"exported", path}, {"los", "hinge"}}), HasSubstr("los"));
  EXPECT_THAT(refusal({{"exported", path}, {"loss", "hings"}}),
              HasSubstr("did you mean \"hinge\""));
  EXPECT_THAT(refusal({{"exported", path}, {"loss", "hinge"}, {"metrics", {"acuracy"}}}),
              HasSubstr("program.metrics[0]"));
  EXPECT_THAT(refusal({{"exported", path}, {"loss", "hinge"}, {"output", 3}}),
              HasSubstr("program.output is 3"));
  EXPECT_THAT(refusal({{"exported", TempPath("none.pt2")}, {"loss", "hinge"}}),
              HasSubstr("none.pt2"));
}

}  // namespace
}  // namespace muster::exported
