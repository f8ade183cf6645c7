#include "common/job/program_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/base/files/files.h"
#include "common/job/job.h"

namespace muster {
namespace {

using testing::HasSubstr;

TEST(ProgramPath, KnowsAFileFromAName) {
  EXPECT_EQ(ProgramFile("linear"), "");
  EXPECT_EQ(ProgramFile("linear.so"), "linear.so");
  EXPECT_EQ(ProgramFile("./linear"), "./linear");
  EXPECT_EQ(ProgramFile({{"exported", "model.pt2"}, {"loss", "hinge"}}), "model.pt2");
  EXPECT_EQ(ProgramFile({{"exported", 7}}), "");
  EXPECT_EQ(ProgramFile({{"torchscript", "model.pt"}}), "");
  EXPECT_EQ(ProgramFile(nullptr), "");
}

TEST(ProgramPath, IsRelativeToTheFolderOfTheJobFile) {
  Json program = "build/../mine.so";
  ResolveProgramFile("/jobs", &program);
  EXPECT_EQ(program, "/jobs/mine.so");
  program = "/else/mine.so";
  ResolveProgramFile("/jobs", &program);
  EXPECT_EQ(program, "/else/mine.so");
  program = {{"exported", "model.pt2"}, {"loss", "hinge"}};
  ResolveProgramFile("/jobs", &program);
  EXPECT_EQ(program["exported"], "/jobs/model.pt2");
  EXPECT_EQ(program["loss"], "hinge");
  program = "linear";
  ResolveProgramFile("/jobs", &program);
  EXPECT_EQ(program, "linear");
  EXPECT_EQ(PortableProgram("/a/b.so"), "b.so");
  EXPECT_EQ(PortableProgram("linear"), "linear");
  EXPECT_EQ(PortableProgram({{"exported", "/a/m.pt2"}, {"loss", "x"}}),
            Json({{"exported", "m.pt2"}, {"loss", "x"}}));
}

TEST(ProgramPath, ItsContentIsTheJobsDigest) {
  std::string folder = testing::TempDir() + "muster-program-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/mine.so") << "abc";
  std::ofstream(folder + "/job.json")
      << R"({"program": "mine.so", "global_batch_size": 4, "digests": {"program": "of before"}})";
  absl::StatusOr<Job> job = LoadJob(folder + "/job.json", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->program, folder + "/mine.so");
  EXPECT_EQ(job->digests, Json::object());
  EXPECT_TRUE(AddProgramDigest(job->program, &job->digests).ok());
  EXPECT_EQ(job->digests, Json({{"program", *FileDigest(folder + "/mine.so")}}));
  std::filesystem::remove(folder + "/mine.so");
  const absl::Status missing = AddProgramDigest(job->program, &job->digests);
  EXPECT_EQ(ExitCodeOf(missing), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("mine.so' cannot be opened: No such file"));
  Json none = Json::object();
  EXPECT_TRUE(AddProgramDigest("linear", &none).ok());
  EXPECT_EQ(none, Json::object());
  std::filesystem::remove_all(folder);
}

Json JobOf(const Json& program, const Json& digests) {
  const absl::StatusOr<Job> job =
      JobFromJson({{"program", program}, {"global_batch_size", 4}, {"digests", digests}});
  return JobToJson(*job);
}

TEST(FirstDifferenceOfJobs, ComparesContentsAndNotPaths) {
  const Json mine = JobOf("/a/x.so", {{"program", "1"}, {"data", "2"}});
  EXPECT_EQ(FirstDifference(mine, JobOf("/b/y.so", {{"program", "1"}, {"data", "2"}})), "");
  EXPECT_EQ(FirstDifference(mine, JobOf("/b/y.so", {{"program", "3"}, {"data", "2"}})),
            "digests.program");
  EXPECT_EQ(FirstDifferingFile(mine, JobOf("/b/y.so", {{"program", "1"}, {"data", "3"}})),
            "digests.data");
  // A parameter server has no program.
  EXPECT_EQ(FirstDifference(mine, JobOf("/b/y.so", Json::object())), "");
  EXPECT_EQ(FirstDifference(mine, JobOf("linear", Json::object())), "program");
  const Json exported = {{"exported", "/a/x.pt2"}, {"loss", "hinge"}};
  EXPECT_EQ(
      FirstDifference(JobOf(exported, {{"program", "1"}}),
                      JobOf({{"exported", "/b/x.pt2"}, {"loss", "huber"}}, {{"program", "1"}})),
      "program.loss");
}

}  // namespace
}  // namespace muster
