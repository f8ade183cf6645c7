// Datasets that the job's data describes, from npy and IDX files.
#include "common/data/job/job_datasets.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "common/data/pipeline.h"
#include "muster/keys.h"
#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An npy file of these values.
template <typename T>
std::string Npy(const std::string& descr, const std::string& shape, const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY\x01";
  bytes += '\0';
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  bytes += header;
  return bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class JobDatasetsTest : public testing::Test {
 protected:
  absl::StatusOr<OpenSplit> Open(const std::string& split, Split which = Split::kTrain) {
    const std::string data = which == Split::kTrain
                                 ? "{\"train\": " + split + "}"
                                 : "{\"train\": \"program\", \"validation\": " + split + "}";
    MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(data, "data"));
    MUSTER_ASSIGN_OR_RETURN(const auto datasets, JobDatasets::Make(json, folder_.path()));
    return datasets->Open(which);
  }
  // All of its examples, in its order in epoch 0.
  Batch All(const std::string& split, Split which = Split::kTrain) {
    const auto open = Open(split, which);
    EXPECT_TRUE(open.ok()) << open.status();
    if (!open.ok()) return {};
    std::vector<int64_t> indices(open->dataset->size());
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
    const auto batch = open->dataset->GetBatch(indices, {});
    EXPECT_TRUE(batch.ok()) << batch.status();
    for (size_t c = 0; c < open->columns.size(); ++c) {
      EXPECT_EQ((*batch)[c].scalar_type(), open->columns[c].type);
      EXPECT_EQ((*batch)[c].sizes().slice(1), at::IntArrayRef(open->columns[c].shape));
      const auto empty = open->dataset->GetBatch({}, {});
      EXPECT_EQ((*empty)[c].size(0), 0);
      EXPECT_EQ((*empty)[c].scalar_type(), open->columns[c].type);
      EXPECT_EQ((*empty)[c].sizes().slice(1), at::IntArrayRef(open->columns[c].shape));
    }
    return *batch;
  }
  std::string Refusal(const std::string& split, ExitCode code) {
    const absl::Status status = Open(split).status();
    EXPECT_EQ(ExitCodeOf(status), code) << status;
    return std::string(Message(status));
  }
  // x.npy: 0 to 9 in float64, and their squares as int32.
  void WriteNumbers() {
    std::vector<double> x;
    std::vector<int32_t> y;
    for (int i = 0; i < 10; ++i) x.push_back(i), y.push_back(i * i);
    WriteBytes(folder_ / "x.npy", Npy("<f8", "10,", x));
    WriteBytes(folder_ / "y.npy", Npy("<i4", "10, 1", y));
  }
  static std::vector<float> Values(const at::Tensor& tensor) {
    const at::Tensor flat = tensor.to(at::kFloat).reshape(-1).contiguous();
    const float* data = flat.const_data_ptr<float>();
    return {data, data + flat.numel()};
  }

  TempFolder folder_;
};

TEST_F(JobDatasetsTest, EveryFormatHasBothHalves) {
  ASSERT_EQ(FormatReaders().size(), DataFormats().size());
  for (size_t i = 0; i < DataFormats().size(); ++i)
    EXPECT_EQ(FormatReaders()[i].name, DataFormats()[i].name);
}

TEST_F(JobDatasetsTest, ReadsNpyColumns) {
  WriteNumbers();
  const Batch batch = All(
      R"({"format": "npy", "x": "x.npy", "y": {"path": "y.npy", "dtype": "int64"}, "shuffle": false})");
  ASSERT_EQ(batch.size(), 2);
  EXPECT_TRUE(at::equal(batch[0], at::arange(10, at::kFloat)));  // float64 became float32
  EXPECT_TRUE(at::equal(batch[1], at::arange(10, at::kLong).square().unsqueeze(1)));
  const Batch reordered = All(R"({"format": "npy", "columns": {"a": "x.npy", "b": "y.npy"},
                                  "order": ["b", "a"], "shuffle": false})");
  EXPECT_EQ(reordered[0].scalar_type(), at::kInt);
  const auto open =
      Open(R"({"format": "npy", "columns": {"a": "x.npy", "b": "y.npy"}, "order": ["b", "a"]})");
  EXPECT_EQ(open->columns[0].name, "b");
  EXPECT_EQ(open->columns[0].shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(open->columns[1].name, "a");
  EXPECT_EQ(
      All(R"({"format": "npy", "x": {"path": "x.npy", "dtype": "float64"}})")[0].scalar_type(),
      at::kDouble);
}

TEST_F(JobDatasetsTest, ReadsIdxColumnsAsAProgramWould) {
  std::string pixels;
  for (int i = 0; i < 3 * 4; ++i) pixels += static_cast<char>(20 * i);
  WriteBytes(folder_ / "images.gz", Gzip(Idx(8, {3, 2, 2}, pixels)));
  WriteBytes(folder_ / "labels", Idx(8, {3}, "\x05\x07\x09"));
  const Batch batch = All(R"({"format": "idx", "shuffle": false,
      "x": {"path": "images.gz", "scale": "1/255", "shape": [1, 2, -1]}, "y": {"path": "labels", "dtype": "int64"}})");
  const at::Tensor bytes = at::arange(0, 240, 20, at::kFloat).reshape({3, 1, 2, 2});
  EXPECT_TRUE(at::equal(batch[0], bytes.div(255))) << "to the last digit";
  EXPECT_TRUE(at::equal(batch[1], at::tensor({5, 7, 9}, at::kLong)));
}

TEST_F(JobDatasetsTest, ScalesAndCasts) {
  WriteNumbers();
  const auto scaled = [&](const std::string& keys) {
    return All(R"({"format": "npy", "shuffle": false, "take": 3, "x": {"path": "y.npy", )" + keys +
               "}}")[0];
  };
  EXPECT_EQ(scaled("\"scale\": 0.5").scalar_type(), at::kFloat);
  EXPECT_THAT(Values(scaled("\"scale\": 0.5")), ElementsAre(0, 0.5, 2));
  EXPECT_THAT(Values(scaled("\"scale\": \"3/4\"")), ElementsAre(0, 0.75, 3));
  EXPECT_EQ(scaled("\"scale\": 0.5, \"dtype\": \"float64\"").scalar_type(), at::kDouble);
  const std::pair<const char*, at::ScalarType> types[] = {
      {"float16", at::kHalf},   {"bfloat16", at::kBFloat16}, {"float32", at::kFloat},
      {"float64", at::kDouble}, {"int8", at::kChar},         {"int16", at::kShort},
      {"int32", at::kInt},      {"int64", at::kLong},        {"uint8", at::kByte}};
  for (const auto& [name, type] : types) {
    const at::Tensor cast = scaled(fmt::format("\"dtype\": \"{}\"", name));
    EXPECT_EQ(cast.scalar_type(), type);
    EXPECT_THAT(Values(cast), ElementsAre(0, 1, 4));
  }
  EXPECT_THAT(Values(scaled("\"dtype\": \"bool\"")), ElementsAre(0, 1, 1));
}

TEST_F(JobDatasetsTest, SplitsOfOneFileLeaveNothingOutAndShareNothing) {
  WriteNumbers();
  const auto part = [&](const std::string& keys) {
    return Values(All(R"({"format": "npy", "x": "x.npy", "shuffle": false, )" + keys + "}")[0]);
  };
  EXPECT_THAT(part("\"skip\": 7"), ElementsAre(7, 8, 9));
  EXPECT_THAT(part("\"take\": 2"), ElementsAre(0, 1));
  EXPECT_THAT(part("\"skip\": 3, \"take\": 2"), ElementsAre(3, 4));
  EXPECT_THAT(part("\"fraction\": [0.9, 1]"), ElementsAre(9));
  for (const double cut : {0.07, 0.29, 0.5, 0.55, 0.93}) {
    std::vector<float> both = part(fmt::format("\"fraction\": [0, {}]", cut));
    const std::vector<float> rest = part(fmt::format("\"fraction\": [{}, 1]", cut));
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_THAT(both, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)) << cut;
  }
}

TEST_F(JobDatasetsTest, TrainingIsShuffledByDefault) {
  WriteNumbers();
  const std::string keys = R"({"format": "npy", "x": "x.npy", "columns": null)";
  const auto shuffled = Values(All(keys + "}")[0]);
  EXPECT_THAT(shuffled, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  const auto kept = Values(All(keys + ", \"shuffle\": false}")[0]);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  const auto passed = Values(All(keys + "}", Split::kValidation)[0]);
  EXPECT_TRUE(std::is_sorted(passed.begin(), passed.end()));
  // Columns stay together.
  const Batch pairs = All(R"({"format": "npy", "x": "x.npy", "y": "y.npy"})");
  EXPECT_TRUE(at::equal(pairs[0].square(), pairs[1].to(at::kFloat).squeeze(1)));
}

TEST_F(JobDatasetsTest, BatchesMayBeWrittenToThoughFilesAreMapped) {
  WriteNumbers();
  const auto open = Open(R"({"format": "npy", "shuffle": false,
                             "x": {"path": "x.npy", "dtype": "float64"}})");
  ASSERT_TRUE(open.ok()) << open.status();
  for (int i = 0; i < 2; ++i) {
    auto batch = open->dataset->GetBatch({0, 1, 2}, {});
    auto example = open->dataset->Get(3, {});
    EXPECT_THAT(Values((*batch)[0]), ElementsAre(0, 1, 2));
    EXPECT_THAT(Values((*example)[0]), ElementsAre(3));
    (*batch)[0].add_(7);
    (*example)[0].add_(7);
  }
}

TEST_F(JobDatasetsTest, NamesKeyAndFileThatIsWrong) {
  WriteNumbers();
  const std::string x = folder_ / "x.npy";
  EXPECT_EQ(Refusal(R"({"format": "npy", "x": "none.npy"})", ExitCode::kDataDamaged),
            fmt::format("data.train.x: '{}/none.npy' cannot be opened: No such file or directory.",
                        folder_.path()));
  EXPECT_THAT(Refusal(R"({"format": "idx", "x": "x.npy"})", ExitCode::kDataDamaged),
              testing::StartsWith("data.train.x: '" + x + "' is not an IDX file"));
  std::ifstream in(x, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  WriteBytes(folder_ / "cut.npy", whole.substr(0, whole.size() - 3));
  EXPECT_THAT(Refusal(R"({"format": "npy", "x": "x.npy", "y": "cut.npy"})", ExitCode::kDataDamaged),
              testing::AllOf(HasSubstr("data.train.y: "), HasSubstr("cut.npy' is truncated"),
                             HasSubstr("80 bytes of data, and there are 77")));
  WriteBytes(folder_ / "few.npy", Npy<int32_t>("<i4", "3,", {1, 2, 3}));
  EXPECT_EQ(Refusal(R"({"format": "npy", "x": "x.npy", "y": "few.npy"})", ExitCode::kDataDamaged),
            "data.train: 'x.npy' has 10 examples and 'few.npy' has 3: they do not belong together");
  WriteBytes(folder_ / "one.npy", Npy<int32_t>("<i4", "", {1}));
  EXPECT_EQ(Refusal(R"({"format": "npy", "x": "one.npy"})", ExitCode::kDataDamaged),
            "data.train.x: 'one.npy' is a single number: its first dimension must be the number of "
            "examples");
}

TEST_F(JobDatasetsTest, RefusesPartsAndShapesThatTheFilesDoNotHave) {
  WriteNumbers();
  const auto refusal = [&](const std::string& keys) {
    return Refusal(R"({"format": "npy", )" + keys + "}", ExitCode::kConfiguration);
  };
  EXPECT_EQ(refusal(R"("x": "x.npy", "skip": 11)"),
            "data.train.skip is 11, but there are 10 examples");
  EXPECT_EQ(refusal(R"("x": "x.npy", "take": 11)"),
            "data.train.take is 11, but there are 10 examples");
  EXPECT_EQ(refusal(R"("x": "x.npy", "skip": 9, "take": 2)"),
            "data.train.take is 2, but there are 1 examples after those skipped");
  EXPECT_EQ(refusal(R"("x": "x.npy", "fraction": [0.5, 0.51])"),
            "data.train.fraction is [0.5, 0.51], which leaves none of the 10 examples");
  EXPECT_EQ(refusal(R"("x": {"path": "y.npy", "shape": [2, -1]})"),
            "data.train.x.shape is [2,-1], but an example of 'y.npy' has shape [1]");
  EXPECT_EQ(refusal(R"("x": {"path": "y.npy", "shape": [3]})"),
            "data.train.x.shape is [3], but an example of 'y.npy' has shape [1]");
}

TEST_F(JobDatasetsTest, TextOfCsvColumnsBecomesKeys) {
  WriteBytes(folder_ / "t.csv", "city,a,b,y\nOslo,x,\"u,v\",1\n Oslo,,u,0\nS\u00e3o Paulo,x,u,1\n");
  const Batch batch = All(R"({"format": "csv", "path": "t.csv", "shuffle": false, "columns": {
      "city": {"from": "city", "hash": "xxh64"},
      "tags": {"from": ["a", "b"], "hash": "xxh3", "dtype": "int64"}, "y": "y"}, )"
                          R"("order": ["city", "tags", "y"]})");
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_TRUE(at::equal(
      batch[0], at::tensor({HashKey("Oslo"), HashKey(" Oslo"), HashKey("S\u00e3o Paulo")})));
  const auto xxh3 = [](const char* text) { return HashKey(text, KeyHash::kXxh3); };
  EXPECT_TRUE(at::equal(
      batch[1], at::tensor({xxh3("x"), xxh3("u,v"), xxh3(""), xxh3("u"), xxh3("x"), xxh3("u")})
                    .reshape({3, 2})));
  EXPECT_TRUE(at::equal(batch[2], at::tensor({1, 0, 1}, at::kLong)));
  const auto refusal = [&](const std::string& x) {
    return std::string(
        Message(Open(R"({"format": "csv", "path": "t.csv", "y": "y", "x": )" + x + "}").status()));
  };
  EXPECT_THAT(refusal(R"({"from": "city", "hash": "xxh32"})"),
              HasSubstr("data.train.x.hash is \"xxh32\", did you mean \"xxh3\"?"));
  EXPECT_THAT(refusal(R"({"from": "city", "hash": "xxh64", "dtype": "int32"})"),
              HasSubstr("hash makes keys of 64 bits, which dtype int32 does not hold"));
  EXPECT_THAT(refusal(R"({"from": "city", "hash": "xxh64", "scale": 2})"),
              HasSubstr("have no scale"));
  EXPECT_THAT(refusal(R"({"from": "city", "decode": "hash xxh32"})"),
              HasSubstr("has \"decode\", which is for formats of encoded features"));
  EXPECT_THAT(refusal(R"("city")"), HasSubstr("is 'Oslo', which is no finite number"));
}

TEST_F(JobDatasetsTest, OpensASplitOnceAProcess) {
  WriteNumbers();
  const auto datasets = *JobDatasets::Make(
      *ParseJson(
          R"({"train": {"format": "npy", "x": "x.npy"}, "test": {"format": "npy", "x": "none.npy"}})",
          "data"),
      folder_.path());
  const auto first = datasets->Open(Split::kTrain);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(datasets->Open(Split::kTrain)->dataset, first->dataset);
  EXPECT_FALSE(datasets->Open(Split::kTest).ok());
}

// ---- Pictures

TEST_F(JobDatasetsTest, PicturesThatResizingMakesEnormousAreDamage) {
  std::filesystem::create_directories(folder_ / "photos/0");
  WriteBytes(folder_ / "photos/0/thin.png", Png(60000, 1, 7));
  for (
      const std::string keys :
      {R"("size": 8, "shorter_side": 2000)",
       R"("transforms": [{"name": "resize", "size": 2000}, {"name": "center_crop", "size": 8}])"}) {
    const auto open = Open(R"({"format": "image_folder", "path": "photos", )" + keys + "}");
    ASSERT_TRUE(open.ok()) << open.status();
    const absl::Status status = open->dataset->GetBatch({0}, {}).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged) << status;
    EXPECT_THAT(
        std::string(Message(status)),
        testing::AllOf(HasSubstr("thin.png'"),
                       HasSubstr("makes 120000000 x 2000 pixels of the picture's 60000 x 1; "
                                 "at most 178956970 are made")));
  }
}

TEST_F(JobDatasetsTest, SizesAreNamedAsTheyAreWritten) {
  const std::string large = "9223372036854775808";  // 2^63
  for (const std::string& step :
       {R"({"name": "resize", "size": )" + large + "}",
        R"({"name": "center_crop", "size": [8, )" + large + "]}",
        R"({"name": "random_crop", "size": 8, "padding": )" + large + "}"}) {
    const std::string refusal =
        Refusal(R"({"format": "image_folder", "path": "photos", "transforms": [)" + step + "]}",
                ExitCode::kConfiguration);
    EXPECT_THAT(refusal, testing::AllOf(HasSubstr(large), testing::Not(HasSubstr("-"))));
  }
}

// A limit of the process is no damage of a picture: each one after it would be left out as well.
TEST_F(JobDatasetsTest, APictureThatTheProcessMayNotOpenIsNotLeftOut) {
  std::filesystem::create_directories(folder_ / "photos/0");
  for (int i = 0; i < 3; ++i)
    WriteBytes(fmt::format("{}/{}.png", folder_ / "photos/0", i), Png(4, 4, 7));
  const auto open =
      Open(R"({"format": "image_folder", "path": "photos", "shuffle": false, "transforms": [
               {"name": "resize", "size": [2, 2]}]})");
  ASSERT_TRUE(open.ok()) << open.status();
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  rlimit none = files;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = LoadPresentExamples(*open->dataset, {0, 3}, {}).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged) << status;
  EXPECT_THAT(std::string(Message(status)),
              testing::AllOf(HasSubstr("photos/0/0.png' cannot be opened: Too many open files"),
                             HasSubstr("ulimit -n")));
  // A file that was removed is left out.
  std::filesystem::remove(folder_ / "photos/0/1.png");
  const auto rest = LoadPresentExamples(*open->dataset, {0, 3}, {});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->count, 2);
}

// ---- Caches below transforms

class CachedPictures : public JobDatasetsTest {
 protected:
  // 12 pictures of 8 x 8 pixels in two classes, but for one.
  void WritePictures(uint32_t height_of_one) {
    for (int i = 0; i < 12; ++i) {
      const std::string of_class = folder_ / fmt::format("photos/{}", i % 2);
      std::filesystem::create_directories(of_class);
      WriteBytes(fmt::format("{}/{:02}.png", of_class, i),
                 Png(i == 5 ? height_of_one : 8, 8, static_cast<uint8_t>(i)));
    }
  }
  static std::string Pictures(const std::string& more) {
    return R"({"format": "image_folder", "path": "photos", "channels": 1, "shuffle": false, )" +
           more + R"(, "transforms": [{"name": "resize", "size": [4, 4]}]})";
  }
  size_t CacheFiles() const {
    size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache"))
      count += file.is_regular_file();
    return count;
  }
};

TEST_F(CachedPictures, OnDiskPicturesOfOtherSizesRefuseTheJobAndNotThePicture) {
  WritePictures(9);
  const auto open = Open(Pictures(R"("cache": {"disk": "cache"})"));
  ASSERT_TRUE(open.ok()) << open.status();
  const absl::Status refused = open->dataset->GetBatch({7, 8}, {}).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfiguration);  // no DataError, which may be skipped
  EXPECT_THAT(std::string(Message(refused)),
              testing::AllOf(HasSubstr("data.train.cache: "), HasSubstr("1/05.png"),
                             HasSubstr("make pictures alike by \"size\", or keep them by "
                                       "\"cache\": \"memory\"")));
  EXPECT_EQ(All(Pictures(R"("cache": "memory")"))[0].sizes(), at::IntArrayRef({12, 1, 4, 4}));
  EXPECT_EQ(All(Pictures(R"("size": [8, 8], "cache": {"disk": "cache"})"))[0].size(0), 12);
}

TEST_F(CachedPictures, PartsOfAFolderShareOneFileOnDisk) {
  WritePictures(8);
  const std::string disk = R"("cache": {"disk": "cache"})";
  const auto part = [&](const std::string& cache, const std::string& range) {
    return All(Pictures(R"("fraction": )" + range + cache));
  };
  for (const std::string range : {"[0, 0.75]", "[0.75, 1]"}) {
    const Batch kept = part(", " + disk, range), plain = part("", range);
    EXPECT_TRUE(at::equal(kept[0], plain[0])) << range;
    EXPECT_TRUE(at::equal(kept[1], plain[1])) << range;
  }
  EXPECT_EQ(CacheFiles(), 1u);
  // The whole folder is in another order.
  EXPECT_TRUE(at::equal(All(Pictures(disk))[0], All(Pictures(R"("cache": null)"))[0]));
  EXPECT_EQ(CacheFiles(), 2u);
}

}  // namespace
}  // namespace muster::data
