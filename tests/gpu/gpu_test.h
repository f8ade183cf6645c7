// The fixture of tests that need one GPU.
#pragma once

#include <gtest/gtest.h>

#include "common/train/replica/devices/devices.h"
#include "tests/gpu/gpu.h"

namespace muster::testing {

class GpuTest : public ::testing::Test {
 protected:
  // If the host has no GPU, the body of the test does not run.
  void SetUp() override {
    const auto devices = ParseDevices("cuda:0");
    MUSTER_NEEDS_GPU(!devices.ok(), Message(devices.status()));
    device_ = devices->front();
  }
  c10::Device device_{at::kCPU};
};

}  // namespace muster::testing
