// The job's "data", and what of its files is compared between members.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/data/job/job_data.h"
#include "common/job/job.h"
#include "common/job/job_files.h"

namespace muster {
namespace {

using data::DataSplit;
using data::JobData;
using testing::ElementsAre;

JobData Parse(const std::string& json) {
  auto data = data::ParseJobData(*ParseJson(json, "data"));
  EXPECT_TRUE(data.ok()) << data.status();
  return data.value_or(JobData());
}

const DataSplit& Train(const JobData& data) { return SplitOf(data, Split::kTrain); }

TEST(JobData, AbsentItIsTheProgramsOwn) {
  const auto data = data::ParseJobData(nullptr);
  ASSERT_TRUE(data.ok()) << data.status();
  for (const DataSplit& split : *data) EXPECT_EQ(split.kind, DataSplit::Kind::kProgram);
}

TEST(JobData, ReplacesTheProgramsSplitsButThoseItKeeps) {
  const JobData data = Parse(R"({"train": {"format": "npy", "x": "x.npy", "y": "y.npy"},
                                 "validation": null, "test": "program"})");
  EXPECT_EQ(Train(data).kind, DataSplit::Kind::kFiles);
  EXPECT_EQ(SplitOf(data, Split::kValidation).kind, DataSplit::Kind::kNone);
  EXPECT_EQ(SplitOf(data, Split::kTest).kind, DataSplit::Kind::kProgram);
}

TEST(JobData, ReadsEveryKeyOfASplit) {
  const JobData data = Parse(R"({
    "train": {"format": "idx", "x": {"path": "images", "scale": "2/255", "shape": [1, -1]}, "skip": 3, "take": 5,
              "y": {"path": "labels", "dtype": "int64"}, "shuffle": false},
    "validation": {"format": "npy", "x": {"path": "x.npy", "scale": 0.5, "dtype": "float16"}, "fraction": [0.9, 1]}})");
  const DataSplit& train = Train(data);
  EXPECT_EQ(train.format, "idx");
  EXPECT_FALSE(train.shuffle);
  EXPECT_EQ(train.skip, 3);
  EXPECT_EQ(train.take, 5);
  ASSERT_EQ(train.columns.size(), 2);
  EXPECT_EQ(train.columns[0].name, "x");
  EXPECT_EQ(train.columns[0].key, "data.train.x");
  EXPECT_EQ(train.columns[0].source, "images");
  EXPECT_EQ(train.columns[0].multiplied, 2);
  EXPECT_EQ(train.columns[0].divided, 255);
  EXPECT_EQ(train.columns[0].shape, (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(train.columns[1].dtype, "int64");
  EXPECT_EQ(train.columns[1].shape, std::nullopt);
  const DataSplit& validation = SplitOf(data, Split::kValidation);
  EXPECT_FALSE(validation.shuffle);
  EXPECT_EQ(validation.columns[0].multiplied, 0.5);
  EXPECT_EQ(validation.fraction, std::pair(0.9, 1.0));
  EXPECT_TRUE(Train(Parse(R"({"train": {"format": "npy", "x": "x.npy"}})")).shuffle);
}

TEST(JobData, NamesItsFilesByKey) {
  const JobData data = Parse(R"({"train": {"format": "npy", "x": "x.npy", "y": {"path": "y.npy"}},
      "validation": "program", "test": {"format": "npy", "columns": {"mask": "m.npy"}}})");
  EXPECT_THAT(data::FilesOf(data),
              ElementsAre(std::pair("data.train.x", "x.npy"), std::pair("data.train.y", "y.npy"),
                          std::pair("data.test.columns.mask", "m.npy")));
}

// A run continues with the examples that it began with, also after their files moved.
TEST(DifferenceInTraining, IsOfExamplesAndTheirOrder) {
  const auto job = [](const std::string& train, const std::string& digest = "") {
    Json json = {{"data", {{"train", *ParseJson(train, "train")}}}, {"digests", Json::object()}};
    if (!digest.empty()) json["digests"]["data.train.x"] = digest;
    return json;
  };
  const auto key = [](const Json& before, const Json& now) {
    const auto difference = data::DifferenceInTraining(before, now);
    EXPECT_EQ(difference.has_value(), data::DifferenceInTraining(now, before).has_value());
    return difference ? difference->key : "";
  };
  const std::string x = R"({"format": "npy", "x": "x.npy"})",
                    z = R"({"format": "npy", "x": "z.npy"})";
  EXPECT_EQ(key(Json::object(), job("\"program\"")), "");
  EXPECT_EQ(key(Json::object(), job(x)), "data.train");
  EXPECT_EQ(key(job(x), job(x)), "");
  EXPECT_EQ(key(job(x), job(z)), "data.train.x");
  EXPECT_EQ(key(job(x, "1 bytes, 0"), job(z, "1 bytes, 0")), "") << "moved";
  EXPECT_EQ(key(job(x, "1 bytes, 0"), job(x, "1 bytes, 1")), "data.train.x");
  for (const char* other : {R"({"format": "idx", "x": "x.npy"})",
                            R"({"format": "npy", "x": "x.npy", "shuffle": false})",
                            R"({"format": "npy", "x": "x.npy", "take": 5})",
                            R"({"format": "npy", "x": "x.npy", "skip": 1})",
                            R"({"format": "npy", "x": "x.npy", "fraction": [0, 0.5]})",
                            R"({"format": "npy", "x": "x.npy", "y": "y.npy"})",
                            R"({"format": "npy", "x": {"path": "x.npy", "scale": 2}})",
                            R"({"format": "npy", "x": {"path": "x.npy", "dtype": "int64"}})"}) {
    EXPECT_EQ(key(job(x), job(other)), "data.train") << other;
  }
  EXPECT_EQ(key(job(x), job(R"({"format": "npy", "x": {"path": "x.npy"}, "shuffle": true})")), "");
  Json with_test = job(x);
  with_test["data"]["test"] = *ParseJson(z, "test");
  EXPECT_EQ(key(job(x), with_test), "") << "passes are repeated";
  const auto difference = data::DifferenceInTraining(job(x, "1 bytes, 0"), job(x, "2 bytes, 1"));
  EXPECT_EQ(difference->before, "1 bytes, 0");
  EXPECT_EQ(difference->now, "2 bytes, 1");
}

struct Mistake {
  const char* data;
  const char* sentence;
};

constexpr Mistake kMistakes[] = {
    {R"([])", "data must be a JSON object, is array"},
    {R"({})",
     "data.train is missing: name the files to train on, or set it to \"program\" to keep the "
     "program's own"},
    {R"({"trian": {}})", "unknown key \"data.trian\", did you mean \"train\"?"},
    {R"({"train": "programm"})",
     "data.train must be an object such as {\"format\": \"npy\", \"x\": \"x.npy\", \"y\": "
     "\"y.npy\"}, or \"program\", is \"programm\""},
    {R"({"train": {"x": "x.npy"}})",
     "data.train.format is missing: name one of csv, idx, image_folder, npy, npz, tar, text, "
     "tfrecord, tokens, unpaired_images"},
    {R"({"train": {"format": "nyp", "x": "x.npy"}})",
     "data.train.format is \"nyp\", did you mean \"npy\"?"},
    {R"({"train": {"format": "parquet", "x": "x.npy"}})",
     "data.train.format is \"parquet\", must be one of csv, idx, image_folder, npy, npz, tar, "
     "text, "
     "tfrecord, tokens, unpaired_images"},
    {R"({"train": {"format": "npy"}})",
     "data.train.x is missing: name the file with the examples (and y, the one with their "
     "targets), or all of them in columns"},
    {R"({"train": {"format": "npy", "y": "y.npy"}})",
     "data.train.x is missing: name the file with the examples (and y, the one with their "
     "targets), or all of them in columns"},
    {R"({"train": {"format": "npy", "x": "x.npy", "shufle": false}})",
     "unknown key \"data.train.shufle\", did you mean \"shuffle\"?"},
    {R"({"train": {"format": "npy", "x": 5}})",
     "data.train.x must be a file's path, or an object such as {\"path\": \"x.npy\", \"dtype\": "
     "\"float32\", \"scale\": \"1/255\"}, is 5"},
    {R"({"train": {"format": "npy", "x": ""}})", "data.train.x names no file: give its path"},
    {R"({"train": {"format": "npy", "x": {"dtype": "int64"}}})",
     "data.train.x names no file: give its path"},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "dtyp": "int64"}}})",
     "unknown key \"data.train.x.dtyp\", did you mean \"dtype\"?"},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "dtype": "float"}}})",
     "data.train.x.dtype is \"float\", did you mean \"float16\"?"},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "scale": 0}}})",
     "data.train.x.scale must be a number other than 0, or a ratio such as \"1/255\", is 0"},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "scale": "1/0"}}})",
     "data.train.x.scale must be a number other than 0, or a ratio such as \"1/255\", is \"1/0\""},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "scale": "1:255"}}})",
     "data.train.x.scale must be a number other than 0, or a ratio such as \"1/255\", is "
     "\"1:255\""},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "scale": 2, "dtype": "int64"}}})",
     "data.train.x.scale makes fractions, which dtype int64 does not hold: leave one of the two "
     "out, or set dtype to float32"},
    {R"({"train": {"format": "npy", "x": {"path": "x.npy", "shape": [-1, -1]}}})",
     "data.train.x.shape must be the dimensions of one example, at most one of them -1, is "
     "[-1,-1]"},
    {R"({"train": {"format": "npy", "x": "x.npy", "skip": -1}})",
     "data.train.skip must be at least 0, is -1"},
    {R"({"train": {"format": "npy", "x": "x.npy", "take": 0}})",
     "data.train.take must be at least 1, is 0"},
    {R"({"train": {"format": "npy", "x": "x.npy", "fraction": [0.9, 0.1]}})",
     "data.train.fraction must be two numbers from 0 to 1, where the part begins and where it "
     "ends, such as [0.9, 1], is [0.9,0.1]"},
    {R"({"train": {"format": "npy", "x": "x.npy", "fraction": [0, 0.5], "take": 3}})",
     "data.train.fraction goes without skip and take: keep the one or the other"},
    {R"({"train": "program", "validation": {"format": "npy", "x": "x.npy", "shuffle": true}})",
     "data.validation.shuffle is for data.train: the order makes no difference to a pass that "
     "counts each example once"},
    {R"({"train": {"format": "npy", "x": "x.npy", "columns": {"a": "a.npy"}}})",
     "data.train has both x and columns: name all of them in columns"},
    {R"({"train": {"format": "npy", "columns": {}}})",
     "data.train.columns must be an object from names to files, is {}"},
    {R"({"train": {"format": "npy", "columns": {"a": "a.npy", "b": "b.npy"}, "order": ["a"]}})",
     "data.train.order must name each of the columns a, b once, is [\"a\"]"},
    {R"({"train": {"format": "npy", "x": "x.npy", "order": ["x"]}})",
     "data.train.order is for columns, and there are none"},
};

TEST(JobData, SaysWhatIsWrong) {
  for (const Mistake& mistake : kMistakes) {
    const absl::Status status =
        JobFromJson({{"program", "linear"}, {"data", *ParseJson(mistake.data, "data")}}).status();
    EXPECT_EQ(Message(status), mistake.sentence) << mistake.data;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  }
}

class JobFiles : public testing::Test {
 protected:
  JobFiles() {
    std::string name = testing::TempDir() + "muster_job_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~JobFiles() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

std::vector<std::string> Names(const absl::StatusOr<Job>& job) {
  std::vector<std::string> names;
  if (!job.ok()) return {std::string(Message(job.status()))};
  const auto data = data::ParseJobData(job->data);
  for (const data::DataColumn& column : Train(*data).columns) names.push_back(column.name);
  return names;
}

// The order survives the resolved job, which is the job of model_dir and of the wire.
TEST_F(JobFiles, ColumnsKeepTheOrderInWhichTheyStand) {
  const std::string job = Write("job.json", R"({"program": "linear", "data": {"train": {
      "format": "npy", "columns": {"tokens": "t.npy", "mask": {"path": "m.npy"}, "target": "y.npy", "a": null}}}})");
  const std::vector<std::string> standing = {"tokens", "mask", "target"};
  const auto loaded = LoadJob(job, {});
  EXPECT_EQ(Names(loaded), standing);
  EXPECT_EQ(Names(JobFromJson(JobToJson(*loaded))), standing);
  const std::string resolved = Write("resolved.json", JobToJson(*loaded).dump());
  EXPECT_EQ(Names(LoadJob(resolved, {})), standing);
  EXPECT_EQ(Names(LoadJob(job, {"data.train.columns.a=a.npy"})),
            (std::vector<std::string>{"tokens", "mask", "target", "a"}));
  EXPECT_EQ(Names(LoadJob(job, {R"(data.train.columns={"z": "z.npy", "b": "b.npy"})"})),
            (std::vector<std::string>{"z", "b"}));
  EXPECT_EQ(Names(LoadJob(job, {R"(data.train.order=["mask", "target", "tokens"])"})),
            (std::vector<std::string>{"mask", "target", "tokens"}));
}

TEST_F(JobFiles, DigestsAreOfTheFilesThatAreThere) {
  Write("x.npy", "a");
  const auto job = LoadJob(Write("job.json", R"({"program": "linear", "data": {
      "train": {"format": "npy", "x": "x.npy", "y": "missing.npy"},
      "test": {"format": "npy", "columns": {"only": "x.npy"}}}})"),
                           {});
  ASSERT_TRUE(job.ok()) << job.status();
  Job here = *job;
  DigestFiles(&here);
  EXPECT_EQ(here.digests, Json({{"data.train.x", "1 bytes, af63dc4c8601ec8c"},
                                {"data.test.columns.only", "1 bytes, af63dc4c8601ec8c"}}));
  Write("x.npy", "b");
  Job there = *job;
  DigestFiles(&there);
  EXPECT_EQ(FirstDifference(JobToJson(here), JobToJson(there)), "digests.data.test.columns.only");
}

// ---- How examples are loaded

data::DataOptions Options(const std::string& json) {
  auto options = data::ParseDataOptions(*ParseJson(json, "data"));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(data::DataOptions());
}

TEST(DataOptions, DefaultsAreAutomaticAndStrict) {
  for (const char* json : {"null", R"({"train": "program"})",
                           R"({"train": "program", "threads": "auto", "prefetch": "auto",
                               "on_error": "fail", "auto_shard": "data"})"}) {
    const data::DataOptions options = Options(json);
    EXPECT_EQ(options.threads, std::nullopt);
    EXPECT_EQ(options.prefetch, std::nullopt);
    EXPECT_FALSE(options.skip_damaged);
    EXPECT_EQ(options.auto_shard, data::AutoShard::kData);
  }
}

TEST(DataOptions, AreObeyed) {
  const data::DataOptions options =
      Options(R"({"threads": 8, "prefetch": 0, "on_error": "skip", "auto_shard": "off"})");
  EXPECT_EQ(options.threads, 8);
  EXPECT_EQ(options.prefetch, 0);
  EXPECT_TRUE(options.skip_damaged);
  EXPECT_EQ(options.auto_shard, data::AutoShard::kOff);
}

TEST(DataOptions, AloneLeaveTheProgramItsData) {
  const JobData data = Parse(R"({"threads": 8, "on_error": "skip"})");
  for (const DataSplit& split : data) {
    EXPECT_EQ(split.kind, DataSplit::Kind::kProgram);
    EXPECT_EQ(split.key, "");  // the program need not declare each
  }
  // A job with splits must still say what it trains on.
  EXPECT_THAT(
      std::string(Message(
          data::ParseJobData(*ParseJson(R"({"threads": 8, "test": "program"})", "data")).status())),
      testing::HasSubstr("data.train is missing"));
}

TEST(DataOptions, SplitsKnowWhetherDamageIsSkipped) {
  const char* split = R"({"format": "npy", "x": "x.npy"})";
  EXPECT_TRUE(
      Train(Parse(fmt::format(R"({{"on_error": "skip", "train": {}}})", split))).skip_damaged);
  EXPECT_FALSE(Train(Parse(fmt::format(R"({{"train": {}}})", split))).skip_damaged);
}

TEST(DataOptions, MistakesAreNamed) {
  const std::string tfrecord = R"("train": {"format": "tfrecord", "path": "a-*", "x": "f"})";
  const std::string part = R"("train": {"format": "tfrecord", "path": "a-*", "x": "f", "take": 5})";
  const std::string npy = R"("train": {"format": "npy", "x": "x.npy"})";
  for (const auto& [json, sentence] : {
           std::pair<std::string, std::string>(
               R"({"threads": 0})",
               "data.threads must be \"auto\" or a number of threads from 1 to 1024, is 0"),
           {R"({"threads": 1.5})", "data.threads must be"},
           {R"({"prefetch": -1})",
            "data.prefetch must be \"auto\" or a number of batches from 0 to 1024, is -1"},
           {R"({"prefetch": "all"})", "is \"all\""},
           {R"({"on_error": "skp"})", "data.on_error is \"skp\", did you mean \"skip\"?"},
           {R"({"auto_shard": "files"})", "data.auto_shard is \"files\", did you mean \"file\"?"},
           {R"({"auto_shard": "file"})",
            "is for tfrecord and tar files, and data.train is the program's own: use \"data\""},
           {"{\"auto_shard\": \"file\", " + npy + "}", "and data.train is npy: use \"data\""},
           {"{\"auto_shard\": \"file\", " + part + "}", "leave out skip, take and fraction"},
           {R"({"train": {"format": "npy", "x": "x.npy", "cache": "disk"}})",
            "data.train.cache must be \"memory\", or {\"disk\": a folder}, is \"disk\""},
           {R"({"train": {"format": "npy", "x": "x.npy", "cache": {"disk": ""}}})",
            "data.train.cache must be"},
       }) {
    const absl::Status status = data::ParseJobData(*ParseJson(json, "data")).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << json;
    EXPECT_THAT(std::string(Message(status)), testing::HasSubstr(sentence)) << json;
  }
  EXPECT_TRUE(
      data::ParseJobData(*ParseJson("{\"auto_shard\": \"file\", " + tfrecord + "}", "data")).ok());
}

TEST(DataOptions, SplitsNameTheirCache) {
  const auto cache = [](const std::string& value) {
    return Train(Parse(R"({"train": {"format": "npy", "x": "x.npy", "cache": )" + value + "}}"))
        .cache;
  };
  EXPECT_EQ(cache("null").kind, data::CacheOptions::Kind::kNone);
  EXPECT_EQ(cache("\"memory\"").kind, data::CacheOptions::Kind::kMemory);
  EXPECT_EQ(cache(R"({"disk": "cache"})").kind, data::CacheOptions::Kind::kDisk);
  EXPECT_EQ(cache(R"({"disk": "cache"})").folder, "cache");
}

TEST(DataOptions, ARunGoesOnWithOthersButTheSharding) {
  const auto job = [](const std::string& keys) {
    return *ParseJson(R"({"data": {"train": {"format": "npy", "x": "x.npy")" + keys, "job");
  };
  const Json before = job("}}}");
  for (const char* keys : {R"(}, "threads": 2, "prefetch": 0, "on_error": "skip"}})",
                           R"(, "cache": "memory"}}})", R"(}, "auto_shard": "data"}})"})
    EXPECT_EQ(data::DifferenceInTraining(before, job(keys)), std::nullopt) << keys;
  const auto difference = data::DifferenceInTraining(before, job(R"(}, "auto_shard": "off"}})"));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->key, "data.auto_shard");
  EXPECT_EQ(difference->before, "data");
  EXPECT_EQ(difference->now, "off");
  // The program's own data too.
  EXPECT_TRUE(data::DifferenceInTraining(*ParseJson("{}", "job"),
                                         *ParseJson(R"({"data": {"auto_shard": "off"}})", "job")));
}

TEST(DataOptions, MembersMayLoadByOtherNumbersOfThreads) {
  const Json plain = *ParseJson(R"({"data": null, "seed": 1})", "job");
  const auto with = [&](const std::string& data) {
    Json job = plain;
    job["data"] = *ParseJson(data, "data");
    return job;
  };
  EXPECT_EQ(FirstDifference(plain, with(R"({"threads": 2, "prefetch": 0})")), "");
  EXPECT_EQ(FirstDifference(with(R"({"threads": 4, "on_error": "skip"})"),
                            with(R"({"on_error": "skip"})")),
            "");
  EXPECT_NE(FirstDifference(plain, with(R"({"on_error": "skip"})")), "");
  EXPECT_EQ(FirstDifference(with(R"({"train": {"format": "npy", "cache": {"disk": "/a"}}})"),
                            with(R"({"train": {"format": "npy"}})")),
            "");
}

}  // namespace
}  // namespace muster
