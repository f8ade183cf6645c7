// Makes model_dirs for the tests of reports.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/summary/event_writer.h"
#include "muster/json.h"

namespace muster::report {

class RunsTest : public testing::Test {
 protected:
  RunsTest() {
    std::string name = std::filesystem::temp_directory_path() / "muster-report-XXXXXX";
    top_ = mkdtemp(name.data());
  }
  ~RunsTest() override { std::filesystem::remove_all(top_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(top_ + "/" + path).parent_path());
    std::ofstream(top_ + "/" + path, std::ios::binary) << text;
  }
  void WriteCurve(const std::string& folder, const std::string& tag,
                  const std::map<int64_t, double>& points, int64_t first_step = 1) {
    auto writer = summary::EventWriter::Open(top_ + "/" + folder, {.first_step = first_step});
    ASSERT_TRUE(writer.ok()) << Message(writer.status());
    for (const auto& [step, value] : points)
      ASSERT_TRUE((*writer)->Scalars(step, {{tag, value}}).ok());
  }
  // A finished run.
  void WriteRun(const std::string& name) {
    Write(name + "/job.json", R"({"program": "linear", "global_batch_size": 5, "seed": 7})");
    Write(name + "/result.json", Dump(Result()));
    WriteCurve(name + "/train", "loss", {{1, 4}, {2, 2}, {3, 1}});
  }
  static Json Result() {
    return {{"status", "completed"},
            {"cause", nullptr},
            {"steps", 3},
            {"world_size", 2},
            {"wall_seconds", 90.0},
            {"examples_per_second", 1234.4},
            {"step_seconds", {{"compute", 0.02}, {"wait", 0.01}, {"input", 0.005}}},
            {"metrics", {{"test", {{"accuracy", 0.875}, {"loss", nullptr}}}, {"train", nullptr}}},
            {"recovery", {{"losses", 1}, {"restarts", 0}, {"seconds_lost", 0.5}}},
            {"hardware", {{"cpu", "A <fast> CPU"}, {"cores", 2}, {"memory_bytes", 1 << 30}}}};
  }

  std::string top_;
};

}  // namespace muster::report
