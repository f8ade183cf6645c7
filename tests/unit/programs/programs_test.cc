// The built-in programs under the real training loop, on replicas of one process.
#include "examples/programs.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/job/job.h"
#include "common/train/membership.h"
#include "common/train/observer.h"
#include "common/train/trainer.h"
#include "tests/paths.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// A folder of this test's own.
class Programs : public ::testing::Test {
 protected:
  Programs() {
    std::string name = (std::filesystem::temp_directory_path() / "programs_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Programs() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string WriteNpy(const std::string& name, const std::string& shape,
                       const std::vector<double>& values) {
    std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + shape + "), }";
    header.resize(117, ' ');
    header += '\n';
    return Write(name, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
                           std::string(reinterpret_cast<const char*>(values.data()),
                                       values.size() * sizeof(double)));
  }
  // The four files of a data set with few images, uncompressed.
  void WriteFashion(int train, int test, int train_labels) {
    for (const auto& [prefix, images, labels] :
         {std::tuple{"train", train, train_labels}, std::tuple{"t10k", test, test}}) {
      std::string pixels("\0\0\x08\x03\0\0\0", 7), classes("\0\0\x08\x01\0\0\0", 7);
      pixels += static_cast<char>(images) + std::string("\0\0\0\x1c\0\0\0\x1c", 8);
      classes += static_cast<char>(labels);
      for (int i = 0; i < images * 784; ++i) pixels += static_cast<char>(i * 31 + i / 784);
      for (int i = 0; i < labels; ++i) classes += static_cast<char>(i % 10);
      Write(std::string(prefix) + "-images-idx3-ubyte", pixels);
      Write(std::string(prefix) + "-labels-idx1-ubyte", classes);
    }
  }

  std::string folder_;
};

struct Recorder : Observer {
  void OnStart(const StartReport& report) override { start = report; }
  void OnStep(const StepReport& report) override { losses.push_back(report.loss); }
  void OnEpoch(const EpochReport& report) override { epochs.push_back(report); }
  StartReport start;
  std::vector<double> losses;
  std::vector<EpochReport> epochs;
};

absl::Status Train(const Json& job, int replicas, Recorder* recorder) {
  TrainerOptions options;
  MUSTER_ASSIGN_OR_RETURN(options.job, JobFromJson(job));
  MUSTER_ASSIGN_OR_RETURN(options.factory, FindProgram(options.job.program));
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.observers = {recorder};
  MUSTER_ASSIGN_OR_RETURN(const auto trainer, Trainer::Make(std::move(options)));
  return trainer->Run(MakeLocalMembership(replicas, std::chrono::seconds(20)).get());
}

Json LinearJob(Json args) {
  return {{"program", "linear"},
          {"global_batch_size", 5},
          {"max_steps", 210},
          {"epochs", 20},
          {"program_args", args}};
}

struct LinearExamples {
  std::vector<std::vector<double>> x;
  std::vector<double> y;
};

// The loss of each step, in double precision.
std::vector<double> Recurrence(const LinearExamples& examples, std::vector<double> w, double b,
                               int steps) {
  std::vector<double> losses;
  const size_t n = examples.y.size(), batches = (n + 4) / 5;
  for (int step = 0; step < steps; ++step) {
    const size_t begin = step % batches * 5, end = std::min(begin + 5, n);
    const double share = 1.0 / static_cast<double>(end - begin);
    double loss = 0, db = 0;
    std::vector<double> dw(w.size());
    for (size_t f = 0; f < w.size(); ++f) {
      loss += 1e-4 * w[f] * w[f];
      dw[f] = 2e-4 * w[f];
    }
    for (size_t i = begin; i < end; ++i) {
      double z = b;
      for (size_t f = 0; f < w.size(); ++f) z += w[f] * examples.x[i][f];
      const double p = 1 / (1 + std::exp(-z)), y = examples.y[i];
      loss -= share * (y * std::log(p) + (1 - y) * std::log(1 - p));
      db += share * (p - y);
      for (size_t f = 0; f < w.size(); ++f) dw[f] += share * (p - y) * examples.x[i][f];
    }
    losses.push_back(loss);
    b -= 0.01 * db;
    for (size_t f = 0; f < w.size(); ++f) w[f] -= 0.01 * dw[f];
  }
  return losses;
}

void ExpectNear(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_NEAR(losses[i], expected[i], 1e-6) << "step " << i + 1;
  }
}

TEST_F(Programs, LinearFollowsTheRecurrence) {
  const LinearExamples copies = {std::vector<std::vector<double>>(1000, {1.0}),
                                 std::vector<double>(1000, 1.0)};
  for (const int replicas : {1, 2, 3}) {
    Recorder recorder;
    const absl::Status status =
        Train(LinearJob({{"kernel_init", 0.5}, {"bias_init", -0.25}}), replicas, &recorder);
    ASSERT_TRUE(status.ok()) << status;
    ExpectNear(recorder.losses, Recurrence(copies, {0.5}, -0.25, 210));
  }
}

// 16 examples in batches of 5: the last one is short, and smaller than the replicas.
TEST_F(Programs, LinearOnFilesFollowsTheRecurrenceInTheirOrder) {
  LinearExamples examples;
  std::vector<double> x;
  for (int i = 0; i < 16; ++i) {
    examples.x.push_back({std::sin(i), 0.25 * (i % 5) - 0.5});
    examples.y.push_back(i % 3 == 0);
    x.insert(x.end(), examples.x.back().begin(), examples.x.back().end());
  }
  const Json args = {{"x", WriteNpy("x.npy", "16, 2", x)},
                     {"y", WriteNpy("y.npy", "16,", examples.y)},
                     {"kernel_init", {0.5, -1.0}}};
  for (const int replicas : {1, 2, 3}) {
    Recorder recorder;
    Json job = LinearJob(args);
    job["epochs"] = 100;
    const absl::Status status = Train(job, replicas, &recorder);
    ASSERT_TRUE(status.ok()) << status;
    ExpectNear(recorder.losses, Recurrence(examples, {0.5, -1.0}, 0, 210));
  }
}

// Files of the job's data take the place of the program's own, in their order where the job says
// so.
TEST_F(Programs, LinearFollowsTheRecurrenceOnTheJobsData) {
  LinearExamples examples;
  std::vector<double> x;
  for (int i = 0; i < 16; ++i) {
    examples.x.push_back({std::cos(i), 0.5 * (i % 3) - 0.5});
    examples.y.push_back(i % 4 == 0);
    x.insert(x.end(), examples.x.back().begin(), examples.x.back().end());
  }
  WriteNpy("x.npy", "16, 2", x);
  WriteNpy("y.npy", "16, 1", examples.y);
  Json job = LinearJob({{"kernel_init", {0.5, -1.0}}});
  job["epochs"] = 100;
  job["folder"] = folder_;
  job["data"]["train"] = {{"format", "npy"}, {"x", "x.npy"}, {"y", "y.npy"}, {"shuffle", false}};
  for (const int replicas : {1, 2, 3}) {
    Recorder recorder;
    const absl::Status status = Train(job, replicas, &recorder);
    ASSERT_TRUE(status.ok()) << status;
    ExpectNear(recorder.losses, Recurrence(examples, {0.5, -1.0}, 0, 210));
  }
  Recorder recorder;
  job["data"]["train"] = {{"format", "npy"}, {"x", "y.npy"}};
  EXPECT_THAT(std::string(Message(Train(job, 1, &recorder))), HasSubstr("must have x and y"));
  job["program_args"] = Json::object();
  job["data"] = {{"train", "program"}, {"test", "program"}};
  const absl::Status status = Train(job, 1, &recorder);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_EQ(Message(status),
            "data.test is \"program\", but the program declares no test dataset: name files");
}

// Looks at its data in build(), and goes no further.
class Looks : public Program {
 public:
  explicit Looks(std::vector<data::Batch>* seen) : seen_(*seen) {}
  void build(Builder& builder) override {
    for (const int64_t count : {0, 2, 9})
      seen_.push_back(builder.data_examples(Split::kTest, count));
    seen_.push_back(builder.data_examples(Split::kValidation, 2));
    throw std::runtime_error("has seen enough");
  }
  void train_step(Step&, const data::Batch&) override {}
  void eval_step(Evaluation&, const data::Batch&) override {}

 private:
  std::vector<data::Batch>& seen_;
};

absl::Status LookAt(const Json& job, std::vector<data::Batch>* seen) {
  TrainerOptions options;
  options.job = *JobFromJson(job);
  options.factory = [seen] { return std::make_unique<Looks>(seen); };
  options.devices = {c10::Device(at::kCPU)};
  return Trainer::Make(std::move(options)).status();
}

TEST_F(Programs, SeeTheFirstExamplesOfTheJobsData) {
  WriteNpy("x.npy", "4, 2", {0, 1, 2, 3, 4, 5, 6, 7});
  std::vector<data::Batch> seen;
  Json job = {{"program", "linear"}, {"global_batch_size", 4}, {"folder", folder_}};
  const Json x = {{"path", "x.npy"}, {"scale", 0.5}};
  job["data"] = {{"train", {{"format", "npy"}, {"x", x}}},
                 {"test", {{"format", "npy"}, {"x", x}, {"skip", 1}}}};
  const auto build = [&] { return LookAt(job, &seen); };
  EXPECT_THAT(std::string(Message(build())), HasSubstr("has seen enough"));
  ASSERT_EQ(seen.size(), 4U);
  const at::Tensor all = at::tensor({1.0, 1.5, 2.0, 2.5, 3.0, 3.5}, at::kFloat).view({3, 2});
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(seen[i].size(), 1U);
    EXPECT_TRUE(at::equal(seen[i][0], all.narrow(0, 0, i == 0 ? 0 : i + 1)));
  }
  EXPECT_TRUE(seen[3].empty());
  // build() reports a problem with the files, with the usual exit code.
  std::filesystem::remove(folder_ + "/x.npy");
  EXPECT_EQ(ExitCodeOf(build()), ExitCode::kDataDamaged);
}

TEST_F(Programs, SeeTheFirstExamplesThatAreNotDamaged) {
  // A grey pixel of 51.
  const std::string png(
      "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x01"
      "\x00\x00\x00\x01\x08\x00\x00\x00\x00\x3a\x7e\x9b\x55\x00\x00\x00\x0a\x49\x44\x41"
      "\x54\x78\x9c\x63\x30\x06\x00\x00\x35\x00\x34\xca\xb4\x99\xed\x00\x00\x00\x00\x49"
      "\x45\x4e\x44\xae\x42\x60\x82",
      67);
  std::filesystem::create_directories(folder_ + "/photos/one");
  for (int i = 0; i < 9; ++i)
    std::ofstream(folder_ + "/photos/one/" + std::to_string(i) + ".png", std::ios::binary)
        << (i < 5 || i == 7 ? png.substr(0, 50) : png);
  std::vector<data::Batch> seen;
  Json job = {{"program", "linear"}, {"global_batch_size", 4}, {"folder", folder_}};
  const Json photos = {
      {"format", "image_folder"}, {"path", "photos"}, {"channels", 1}, {"size", 1}};
  job["data"] = {{"train", photos}, {"test", photos}, {"on_error", "skip"}};
  const auto build = [&] { return LookAt(job, &seen); };
  EXPECT_THAT(std::string(Message(build())), HasSubstr("has seen enough"));
  ASSERT_EQ(seen.size(), 4U);
  for (const auto& [i, count] : {std::pair{0, 0}, {1, 2}, {2, 3}}) {  // of 0, 2 and 9
    ASSERT_EQ(seen[i].size(), 2U);
    EXPECT_EQ(seen[i][0].size(0), count);
    EXPECT_EQ(seen[i][0].to(at::kFloat).sum().item<float>(), 51.f * static_cast<float>(count));
  }
  job["data"]["on_error"] = "fail";
  EXPECT_EQ(ExitCodeOf(build()), ExitCode::kDataDamaged);
}

TEST_F(Programs, LinearRefusals) {
  const std::string x = WriteNpy("x.npy", "4, 2", std::vector<double>(8, 1)),
                    y = WriteNpy("y.npy", "4,", std::vector<double>(4, 1)),
                    y3 = WriteNpy("y3.npy", "3,", std::vector<double>(3, 1));
  const std::vector<std::tuple<Json, ExitCode, const char*>> refusals = {
      {{{"x", x}}, ExitCode::kConfiguration, "program_args.y is missing"},
      {{{"x", x}, {"y", y}, {"kernel_init", {1, 2, 3}}},
       ExitCode::kConfiguration,
       "3 values for 2"},
      {{{"kernel_init", "one"}}, ExitCode::kConfiguration, "kernel_init"},
      {{{"kernel_inti", 1}}, ExitCode::kConfiguration, "did you mean \"kernel_init\"?"},
      {{{"x", x}, {"y", y3}}, ExitCode::kDataDamaged, "must be [4]"},
      {{{"x", folder_ + "/none.npy"}, {"y", y}}, ExitCode::kDataDamaged, "none.npy"},
  };
  for (const auto& [args, code, sentence] : refusals) {
    Recorder recorder;
    const absl::Status status = Train(LinearJob(args), 1, &recorder);
    EXPECT_EQ(ExitCodeOf(status), code) << args << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(sentence)) << args;
  }
}

Json FashionJob(const std::string& folder, Json more) {
  Json args = {{"data_dir", folder}, {"hidden", 4}};
  args.update(more);
  return {{"program", "fashion_mnist"},
          {"global_batch_size", 16},
          {"epochs", 2},
          {"program_args", args}};
}

TEST_F(Programs, FashionMnistSplitsItsFiles) {
  WriteFashion(60, 20, 60);
  for (const int replicas : {1, 3}) {  // 50 = 3 x 16 + 2: the last batch leaves a replica empty
    Recorder recorder;
    const absl::Status status =
        Train(FashionJob(folder_, {{"validation", 10}}), replicas, &recorder);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(recorder.start.split_sizes,
                ::testing::ElementsAre(std::pair("train", 50), std::pair("validation", 10),
                                       std::pair("test", 20)));
    ASSERT_EQ(recorder.losses.size(), 8u);
    EXPECT_NEAR(recorder.losses[0], std::log(10), 1);
    EXPECT_EQ(recorder.epochs.back().split, "test");
    EXPECT_EQ(recorder.epochs.back().metrics.count("accuracy"), 1u);
  }
}

// The program's own files, described by the job: the same examples in the same order, so the same
// numbers to the last digit. (It takes bytes, and scales them itself.) Its own folder is not looked
// into.
TEST_F(Programs, FashionMnistIsTheSameOnTheJobsData) {
  WriteFashion(60, 20, 60);
  Recorder own, described;
  ASSERT_TRUE(Train(FashionJob(folder_, {{"validation", 10}}), 2, &own).ok());
  Json job = FashionJob(folder_ + "/none", {{"validation", 10}});
  job["folder"] = folder_;
  const auto split = [](const char* prefix, Json part) {
    Json split = {
        {"format", "idx"},
        {"x", {{"path", std::string(prefix) + "-images-idx3-ubyte"}, {"shape", {1, 28, 28}}}},
        {"y", {{"path", std::string(prefix) + "-labels-idx1-ubyte"}, {"dtype", "int64"}}}};
    split.update(part);
    return split;
  };
  job["data"] = {{"train", split("train", {{"take", 50}})},
                 {"validation", split("train", {{"skip", 50}})},
                 {"test", split("t10k", Json::object())}};
  const absl::Status status = Train(job, 2, &described);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(described.start.split_sizes, own.start.split_sizes);
  EXPECT_EQ(described.losses, own.losses);
  ASSERT_EQ(described.epochs.size(), own.epochs.size());
  for (size_t e = 0; e < own.epochs.size(); ++e)
    EXPECT_EQ(described.epochs[e].metrics, own.epochs[e].metrics);
  job["data"].erase("validation");
  Recorder without;
  ASSERT_TRUE(Train(job, 1, &without).ok());
  EXPECT_THAT(without.start.split_sizes,
              ::testing::ElementsAre(std::pair("train", 50), std::pair("test", 20)));
}

TEST_F(Programs, FashionMnistLimitsAndNoValidation) {
  WriteFashion(60, 20, 60);
  Recorder recorder;
  const absl::Status status =
      Train(FashionJob(folder_, {{"validation", 0}, {"train_examples", 24}}), 1, &recorder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(recorder.start.split_sizes,
              ::testing::ElementsAre(std::pair("train", 24), std::pair("test", 20)));
}

TEST_F(Programs, FashionMnistRefusals) {
  Recorder recorder;
  absl::Status status = Train(FashionJob(folder_, Json::object()), 1, &recorder);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("dataset-fashion-mnist"));
  WriteFashion(60, 20, 60);
  status = Train(FashionJob(folder_, {{"validation", 60}}), 1, &recorder);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("leaves none of the 60"));
  status = Train(FashionJob(folder_, {{"hidden", 0}}), 1, &recorder);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("program_args.hidden must be above 0"));
  WriteFashion(60, 20, 59);
  status = Train(FashionJob(folder_, {{"validation", 10}}), 1, &recorder);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("train-labels-idx1-ubyte"));
}

Json RatingsJob(Json args) {
  const Json small = {{"users", 400},      {"items", 150},       {"rank", 2}, {"noise", 0.25},
                      {"examples", 40000}, {"validation", 5000}, {"width", 4}};
  Json all = small;
  all.update(args);
  return {{"program", "matrix_factorization"},
          {"global_batch_size", 256},
          {"epochs", 4},
          {"program_args", all}};
}

// The noise is all that is left: 0.25, and a little for what 100 ratings of a user cannot tell.
TEST_F(Programs, MatrixFactorizationComesNearTheNoise) {
  Recorder recorder;
  const absl::Status status = Train(RatingsJob(Json::object()), 1, &recorder);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(recorder.epochs.size(), 8u);
  EXPECT_GT(recorder.epochs[0].metrics.at("rmse"), 0.3);
  EXPECT_EQ(recorder.epochs.back().split, "validation");
  EXPECT_LT(recorder.epochs.back().metrics.at("rmse"), 0.275);
  EXPECT_GT(recorder.epochs.back().metrics.at("rmse"), 0.245);
  EXPECT_NEAR(recorder.epochs.back().metrics.at("loss"),
              std::pow(recorder.epochs.back().metrics.at("rmse"), 2), 1e-5);
}

TEST_F(Programs, MatrixFactorizationIsTheSameOnTwoReplicas) {
  std::vector<Recorder> recorders(2);
  for (int replicas : {1, 2}) {
    Json job = RatingsJob({{"examples", 5000}});
    job["epochs"] = 1;
    ASSERT_TRUE(Train(job, replicas, &recorders[replicas - 1]).ok());
  }
  ASSERT_EQ(recorders[0].losses.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(recorders[0].losses[i], recorders[1].losses[i], 1e-4) << "step " << i + 1;
}

TEST_F(Programs, MatrixFactorizationRefusals) {
  Recorder recorder;
  EXPECT_THAT(std::string(Message(Train(RatingsJob({{"users", 0}}), 1, &recorder))),
              HasSubstr("program_args.users must be at least 1, is 0"));
  EXPECT_THAT(std::string(Message(Train(RatingsJob({{"width", 1}}), 1, &recorder))),
              HasSubstr("program_args.width must be at least 2, is 1"));
  EXPECT_THAT(std::string(Message(Train(RatingsJob({{"noise", -1.0}}), 1, &recorder))),
              HasSubstr("program_args.noise must not be below 0"));
}

Json ClicksJob(Json args) {
  Json all = {
      {"keys", 500}, {"examples", 100000}, {"validation", 10000}, {"width", 4}, {"hidden", 32}};
  all.update(args);
  return {
      {"program", "recommender"}, {"global_batch_size", 256}, {"epochs", 1}, {"program_args", all}};
}

TEST_F(Programs, TheRecommenderNeedsItsTables) {
  double best = 0;
  std::map<int, double> auc;
  for (const int tables : {8, 0}) {
    Recorder recorder;
    const absl::Status status = Train(ClicksJob({{"tables", tables}}), 1, &recorder);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(recorder.epochs.back().split, "validation");
    best = recorder.epochs.back().metrics.at("best_auc");
    auc[tables] = recorder.epochs.back().metrics.at("auc");
  }
  EXPECT_GT(best, 0.8);
  EXPECT_GT(auc[8], best - 0.05);
  EXPECT_LT(auc[8], best);
  EXPECT_LT(auc[0], best - 0.15);
}

TEST_F(Programs, TheRecommenderIsTheSameOnThreeReplicas) {
  std::map<int, Recorder> recorders;
  for (const int replicas : {1, 3}) {
    const Json job = ClicksJob({{"examples", 5000}, {"validation", 1000}});
    ASSERT_TRUE(Train(job, replicas, &recorders[replicas]).ok());
  }
  ASSERT_EQ(recorders[1].losses.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(recorders[1].losses[i], recorders[3].losses[i], 2e-4) << "step " << i + 1;
  EXPECT_NEAR(recorders[1].epochs.back().metrics.at("auc"),
              recorders[3].epochs.back().metrics.at("auc"), 1e-3);
}

TEST_F(Programs, RecommenderRefusals) {
  Recorder recorder;
  EXPECT_THAT(std::string(Message(Train(ClicksJob({{"tables", 9}}), 1, &recorder))),
              HasSubstr("program_args.tables must be at most 8, is 9"));
  EXPECT_THAT(std::string(Message(Train(ClicksJob({{"keys", 0}}), 1, &recorder))),
              HasSubstr("program_args.keys must be at least 1, is 0"));
  EXPECT_THAT(std::string(Message(Train(ClicksJob({{"zipf", -1.0}}), 1, &recorder))),
              HasSubstr("program_args.zipf must not be below 0"));
}

TEST(FindProgram, KnowsThoseOfAllJobsInExamples) {
  std::set<std::string> programs;
  for (const auto& file :
       std::filesystem::directory_iterator(testing_support::SourceDir() + "/examples")) {
    if (file.path().extension() != ".json") continue;
    const auto job = LoadJob(file.path(), {});
    ASSERT_TRUE(job.ok()) << job.status();
    const auto factory = FindProgram(job->program);
    ASSERT_TRUE(factory.ok()) << file.path() << ": " << factory.status();
    EXPECT_NE((*factory)(), nullptr);
    programs.insert(job->program);
  }
  EXPECT_THAT(programs,
              IsSupersetOf({"cyclegan", "fashion_mnist", "image_classifier", "language_model",
                            "linear", "matrix_factorization", "recommender"}));
}

TEST(FindProgram, Refusals) {
  const std::vector<std::pair<Json, const char*>> refusals = {
      {"fashion-mnist", "did you mean \"fashion_mnist\"?"},
      {"imagenet",
       "built-in programs: cyclegan, fashion_mnist, image_classifier, language_model, linear, "
       "matrix_factorization, recommender"},
      {"plugins/mine.so", "program 'plugins/mine.so' cannot be read: No such file or directory"},
      {{{"torchscript", "model.pt"}}, "write the model with torch.export.save"},
      {{{"exported", "no-such-file.pt2"}, {"loss", "cross_entropy"}}, "no-such-file.pt2"},
      {Json(), "names no program"},
      {7, "must be the name"},
  };
  for (const auto& [program, sentence] : refusals) {
    const auto factory = FindProgram(program);
    ASSERT_FALSE(factory.ok()) << program;
    EXPECT_EQ(ExitCodeOf(factory.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(factory.status())), HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace muster
