#include <gtest/gtest.h>

#include "evaluator/host_share.h"

namespace muster::evaluator {
namespace {

TEST(EvaluatorDevices, GpusOfASharedHostAreTheMembers) {
  EXPECT_EQ(EvaluatorDevices("auto", /*shares_host=*/true, nullptr), "cpu");
  EXPECT_EQ(EvaluatorDevices("auto", /*shares_host=*/true, "0"), "cpu");
}

// `muster launch` shows GPUs only to the members, for every `devices` of the job.
TEST(EvaluatorDevices, WithoutAVisibleGpuItIsTheCpu) {
  EXPECT_EQ(EvaluatorDevices("cuda", /*shares_host=*/true, ""), "cpu");
  EXPECT_EQ(EvaluatorDevices("cuda:0", /*shares_host=*/true, ""), "cpu");
}

TEST(EvaluatorDevices, ElseTheyAreTheJobs) {
  EXPECT_EQ(EvaluatorDevices("cuda:1", /*shares_host=*/true, "0,1"), "cuda:1");
  EXPECT_EQ(EvaluatorDevices("cuda", /*shares_host=*/true, nullptr), "cuda");
  EXPECT_EQ(EvaluatorDevices("auto", /*shares_host=*/false, nullptr), "auto");
  EXPECT_EQ(EvaluatorDevices("cuda", /*shares_host=*/false, ""), "cuda");  // refused by name
}

}  // namespace
}  // namespace muster::evaluator
