#include "common/train/state/variables.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using testing::Tensors2;
using testing::TestProgram;

Job OneStep() {
  Job job;
  job.global_batch_size = 1;
  return job;
}

// The program's models hold what `set_up` registers; "sgd" is over "net".
std::unique_ptr<Replica> Build(const Job& job, std::function<void(TestProgram&)> set_up) {
  auto replica = Replica::Make(
      job,
      [&] {
        auto program = std::make_unique<TestProgram>();
        program->on_build = [set_up](TestProgram& p, Builder& builder) {
          set_up(p);
          builder.model("net", p.model);
          if (p.second) builder.model("fixed", p.second);
          builder.optimizer("sgd", {"net"}, Json{{"name", "sgd"}, {"momentum", 0.9}}, 0.1);
          builder.dataset(Split::kTrain, Tensors2(at::zeros({1, 1}), at::zeros({1})));
        };
        return program;
      },
      at::kCPU);
  EXPECT_TRUE(replica.ok()) << replica.status();
  return *std::move(replica);
}

TEST(VariablesTest, ParametersByOptimizerThenTheRest) {
  const Job job = OneStep();
  const auto replica = Build(job, [](TestProgram& p) {
    p.model->parameter("w", at::ones({3, 2}));
    p.model->buffer("mean", at::zeros({2}));
    p.model->buffer("count", at::zeros({}, at::kLong));
    p.model->parameter("frozen", at::ones({4})).requires_grad_(false);
    p.model->parameter("b", at::ones({}));
    p.second = std::make_shared<testing::Tensors>();
    p.second->parameter("table", at::ones({5}));
  });
  const auto served = VariablesToServe(replica.get());
  ASSERT_TRUE(served.ok()) << served.status();
  std::vector<std::string> names;
  std::vector<int> optimizers;
  for (const push_pull::VariableSpec& spec : served->specs) {
    names.push_back(spec.name);
    optimizers.push_back(spec.optimizer);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"net.w", "net.b", "net.frozen", "net.mean", "fixed.table"}));
  EXPECT_EQ(optimizers, (std::vector<int>{0, 0, 1, 1, 1}));
  EXPECT_EQ(served->rest(), 1);
  EXPECT_EQ(served->optimizers[0], (Json{{"name", "sgd"}, {"momentum", 0.9}}));
  EXPECT_EQ(served->specs[0].shape, (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(served->specs[1].shape.empty());
  EXPECT_EQ(served->tensors[0].data_ptr(),
            replica->optimizers()[0].rule->parameters()[0].data_ptr());
}

TEST(VariablesTest, ChannelsLastKeepsItsOrder) {
  const Job job = OneStep();
  const auto replica = Build(job, [](TestProgram& p) {
    p.model->parameter("conv", at::arange(4 * 3 * 2 * 2)
                                   .to(at::kFloat)
                                   .reshape({4, 3, 2, 2})
                                   .contiguous(at::MemoryFormat::ChannelsLast));
    p.model->parameter("one", at::ones({4, 1, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  });
  const auto served = VariablesToServe(replica.get());
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->specs[0].order, (std::vector<int64_t>{0, 2, 3, 1}));
  EXPECT_TRUE(served->specs[1].order.empty()) << "one channel: both orders are the same";
  const auto spans =
      ShardSpans(push_pull::MakeLayout(served->specs, {}), served->specs, served->tensors);
  ASSERT_EQ(spans.size(), 1u);
  // Element [0, 1, 0, 0] comes right after [0, 0, 0, 0].
  EXPECT_EQ(spans[0][0][1], 4.f);
}

TEST(VariablesTest, WhatIsTransposedBecomesRowMajor) {
  const Job job = OneStep();
  const auto replica = Build(job, [](TestProgram& p) {
    p.model->parameter("w", at::arange(6).to(at::kFloat).reshape({2, 3}).t());
  });
  const at::Tensor before = replica->optimizers()[0].rule->parameters()[0];
  const at::Tensor values = before.detach().clone();
  const auto served = VariablesToServe(replica.get());
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_TRUE(served->specs[0].order.empty());
  EXPECT_TRUE(before.is_contiguous());
  EXPECT_TRUE(before.requires_grad());
  EXPECT_TRUE(before.equal(values));
  EXPECT_EQ(served->tensors[0].data_ptr(), before.data_ptr());
  EXPECT_TRUE(replica->optimizers()[0].rule->slot(0)[0].is_contiguous());
}

TEST(VariablesTest, ShardsCoverAllInTheOrderOfTheirMemory) {
  const Job job = OneStep();
  const auto replica = Build(job, [](TestProgram& p) {
    p.model->parameter("a", at::arange(70).to(at::kFloat).reshape({7, 10}));
    p.model->parameter("b", at::arange(5).to(at::kFloat));
    p.model->parameter("empty", at::zeros({0, 3}));
    p.model->buffer("mean", at::arange(3).to(at::kFloat));
  });
  const auto served = VariablesToServe(replica.get());
  ASSERT_TRUE(served.ok()) << served.status();
  push_pull::LayoutOptions options;
  options.servers = 3;
  options.partitioner.kind = push_pull::Partitioner::Kind::kFixed;
  options.partitioner.parts = 3;
  options.chunk_bytes = 40;
  const push_pull::Layout layout = push_pull::MakeLayout(served->specs, options);
  const auto spans = ShardSpans(layout, served->specs, served->tensors);
  ASSERT_EQ(spans.size(), 3u);
  for (size_t s = 0; s < spans.size(); ++s) {
    int64_t elements = 0;
    for (const auto& span : spans[s]) elements += static_cast<int64_t>(span.size());
    EXPECT_EQ(elements, layout.elements[s]);
  }
  for (const push_pull::VariablePart& part : layout.parts) {
    if (part.elements() == 0) continue;
    int64_t offset = 0;
    const float* found = nullptr;
    for (const auto& span : spans[part.server]) {
      if (offset == part.offset) found = span.data();
      offset += static_cast<int64_t>(span.size());
    }
    EXPECT_EQ(found, served->tensors[part.variable].data_ptr<float>() + part.begin);
  }
}

TEST(VariablesTest, OtherTypesAreRefused) {
  const Job job = OneStep();
  const auto wide =
      Build(job, [](TestProgram& p) { p.model->parameter("w", at::ones({2}, at::kDouble)); });
  const auto served = VariablesToServe(wide.get());
  ASSERT_FALSE(served.ok());
  EXPECT_EQ(ExitCodeOf(served.status()), ExitCode::kProgramFailed);
  EXPECT_NE(Message(served.status()).find("net.w is of type Double"), std::string::npos);
  const auto buffer = Build(job, [](TestProgram& p) {
    p.model->parameter("w", at::ones({2}));
    p.model->buffer("mean", at::ones({2}, at::kHalf));
  });
  EXPECT_FALSE(VariablesToServe(buffer.get()).ok());
}

}  // namespace
}  // namespace muster
