#include "common/job/job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/job/job_checks.h"
#include "tests/paths.h"

namespace muster {
namespace {

using testing::HasSubstr;

Json Minimal() { return {{"program", "fashion_mnist"}}; }

Job Parse(Json json) {
  json.emplace("program", "fashion_mnist");
  const absl::StatusOr<Job> job = JobFromJson(json);
  EXPECT_TRUE(job.ok()) << json << ": " << job.status();
  return job.value_or(Job{});
}

// A file that is gone when the test ends.
class JobFile {
 public:
  explicit JobFile(std::string_view text) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + fmt::format("{}.{}.json", test->test_suite_name(), test->name());
    std::ofstream(path_) << text;
  }
  ~JobFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr char kFull[] = R"({ // everything that differs from its default
  "program": {"torchscript": "model.pt"}, "program_args": {"hidden": 64}, "folder": "/jobs",
  "data": {"train": {"format": "npy", "columns": {"b": "b.npy", "a": "a.npy"}, "order": ["b", "a"]}},
  "strategy": "parameter_server", "global_batch_size": 128, "epochs": 5, "max_steps": 1000,
  "steps_per_epoch": 100, "accumulate_steps": 2, "drop_remainder": true,
  "seed": 18446744073709551615, "model_dir": "runs/x", "restore": "never", "devices": "cuda:0,1",
  "precision": "bfloat16", "loss_reduction": "local_mean", "optimizer": {"name": "adam"},
  "learning_rate": 0.1, "checkpoint": {"every_steps": 500, "every_epochs": 1, "keep": 7, "best": "accuracy",
  "best_mode": "max"}, "summary": {"every_steps": 10, "histograms_every_epochs": 2}, "callbacks": [{"name": "early_stopping"}],
  "collective": {"backend": "tcp", "interface": "eth0", "bucket_bytes": 100,
                 "first_bucket_bytes": 10},
  "parameter_server": {"max_staleness": 4}, "elastic": {"min_workers": 2},
  "timeouts": {"join": 0.29, "evaluate": 60.0, "phase": {"data": 7.5}},
  "tls": {"enabled": true, "certificate": "a.pem", "key": "b.pem", "authority": "c.pem"},
  "digests": {"program": "5 bytes, 00"} })";

TEST(Job, ReadsEveryKey) {
  const Job job = Parse(*ParseJson(kFull, "job"));
  EXPECT_EQ(job.program, Json({{"torchscript", "model.pt"}}));
  EXPECT_EQ(job.strategy, StrategyKind::kParameterServer);
  EXPECT_EQ(job.global_batch_size, 128);
  EXPECT_EQ(job.drop_remainder, true);
  EXPECT_EQ(job.seed, 18446744073709551615u);
  EXPECT_EQ(job.precision, Precision::kBFloat16);
  EXPECT_EQ(job.loss_reduction, LossReduction::kLocalMean);
  EXPECT_EQ(job.checkpoint.every_epochs, 1);
  EXPECT_EQ(job.checkpoint.keep, 7);
  EXPECT_EQ(job.checkpoint.best, "accuracy");
  EXPECT_EQ(job.summary.histograms_every_epochs, 2);
  EXPECT_EQ(job.summary.every_steps, 10);
  EXPECT_EQ(job.collective.interface, "eth0");
  EXPECT_EQ(job.timeouts.join, std::chrono::milliseconds(290));
  EXPECT_EQ(job.timeouts.phase[static_cast<int>(Phase::kData)], std::chrono::milliseconds(7500));
  EXPECT_EQ(job.timeouts.phase[static_cast<int>(Phase::kForward)], std::chrono::minutes(5));
  EXPECT_EQ(job.tls.authority, "c.pem");
}

TEST(Job, GoesToJsonAndBack) {
  for (const Json& json : {Minimal(), *ParseJson(kFull, "job")}) {
    const Json resolved = JobToJson(*JobFromJson(json));
    EXPECT_EQ(JobToJson(*JobFromJson(resolved)), resolved);
  }
  // Every key of kFull came through as it was written, so none is lost on the way.
  const Json full = *ParseJson(kFull, "job");
  const Json flat = full.flatten(), resolved = JobToJson(*JobFromJson(full)).flatten();
  for (const auto& [key, value] : flat.items())
    EXPECT_EQ(resolved.value(key, Json()), value) << key;
}

TEST(Job, NullIsTheDefault) {
  Json json = JobToJson(Parse(Json::object()));
  for (auto& [key, value] : json.items()) {
    if (key != "program") value = nullptr;
  }
  EXPECT_EQ(JobToJson(Parse(json)), JobToJson(Parse(Json::object())));
}

struct Mistake {
  const char* job;
  const char* sentence;
};

constexpr Mistake kMistakes[] = {
    {R"({"program": null})",
     "program is missing: name a built-in program such as \"fashion_mnist\""},
    {R"({"program": ""})",
     "program must be a program's name, the path of a plugin or an object such as "
     "{\"exported\": PATH, ...}, is \"\""},
    {R"({"program": {}})",
     "program must be a program's name, the path of a plugin or an object such as "
     "{\"exported\": PATH, ...}, is empty"},
    {R"({"program": 5})",
     "program must be a program's name, the path of a plugin or an object such as "
     "{\"exported\": PATH, ...}, is number"},
    {R"({"program_args": [1]})", "program_args must be an object, is array"},
    {R"({"epocs": 5})", "unknown key \"epocs\", did you mean \"epochs\"?"},
    {R"({"checkpoint": {"evry_steps": 5}})",
     "unknown key \"checkpoint.evry_steps\", did you mean \"every_steps\"?"},
    {R"({"timeouts": {"phase": {"reduse": 5}}})",
     "unknown key \"timeouts.phase.reduse\", did you mean \"reduce\"?"},
    {R"({"elastic": {"min_worker": 2}})",
     "unknown key \"elastic.min_worker\", did you mean \"min_workers\"?"},
    {R"({"strategy": "mirored"})", "strategy is \"mirored\", did you mean \"mirrored\"?"},
    {R"({"strategy": 1})", "strategy must be a string, is 1"},
    {R"({"precision": "float8"})", "precision is \"float8\", did you mean \"float32\"?"},
    {R"({"loss_reduction": "zzzzzzzzzzzzzzz"})",
     "loss_reduction is \"zzzzzzzzzzzzzzz\", must be one of global, nominal, local_mean"},
    {R"({"collective": {"backend": "gloo-and-more"}})",
     "collective.backend is \"gloo-and-more\", must be one of auto, nccl, tcp, shared_memory, "
     "hierarchical"},
    {R"({"global_batch_size": 0})", "global_batch_size must be at least 1, is 0"},
    {R"({"global_batch_size": "128"})", "global_batch_size must be an integer, is \"128\""},
    {R"({"per_replica_batch_size": -1})", "per_replica_batch_size must be at least 1, is -1"},
    {R"({"global_batch_size": 8, "per_replica_batch_size": 8})",
     "global_batch_size and per_replica_batch_size are both given: keep one (null removes the "
     "other)"},
    {R"({"epochs": 0})", "epochs must be at least 1, is 0"},
    {R"({"epochs": 1.5})", "epochs must be an integer, is 1.5"},
    {R"({"max_steps": 0})", "max_steps must be at least 1, is 0"},
    {R"({"steps_per_epoch": 0})", "steps_per_epoch must be at least 1, is 0"},
    {R"({"accumulate_steps": 0})", "accumulate_steps must be at least 1, is 0"},
    {R"({"drop_remainder": 1})", "drop_remainder must be true or false, is 1"},
    {R"({"seed": -1})", "seed must be an integer not below 0, is -1"},
    {R"({"restore": ""})", "restore is empty: set it to auto, never or a path"},
    {R"({"optimizer": 1})",
     "optimizer must be a name, or an object such as {\"name\": \"adam\", ...}, is number"},
    {R"({"learning_rate": -0.5})",
     "learning_rate must be a number not below 0, or an object such as {\"name\": \"cosine\", "
     "...}, is -0.5"},
    {R"({"learning_rate": "cosine"})",
     "learning_rate must be a number not below 0, or an object such as {\"name\": \"cosine\", "
     "...}, is \"cosine\""},
    {R"({"checkpoint": 500})", "checkpoint must be a JSON object, is number"},
    {R"({"checkpoint": {"every_steps": 0}})", "checkpoint.every_steps must be at least 1, is 0"},
    {R"({"checkpoint": {"best_mode": "mini"}})",
     "checkpoint.best_mode is \"mini\", did you mean \"min\"?"},
    {R"({"checkpoint": {"keep": 0}})", "checkpoint.keep must be at least 1, is 0"},
    {R"({"summary": {"every_steps": 0}})", "summary.every_steps must be at least 1, is 0"},
    {R"({"callbacks": {}})", "callbacks must be a list, is object"},
    {R"({"collective": {"bucket_bytes": 0}})", "collective.bucket_bytes must be at least 1, is 0"},
    {R"({"parameter_server": 1})", "parameter_server must be a JSON object, is number"},
    {R"({"parameter_server": {"max_staleness": -1}})",
     "parameter_server.max_staleness must be at least 0, is -1"},
    {R"({"strategy": "parameter_server", "deterministic": true})",
     "deterministic is true, but strategy is \"parameter_server\", in which updates come in "
     "another "
     "order in each run: set strategy to \"multi_worker_mirrored\", or deterministic to false"},
    {R"({"strategy": "parameter_server", "deterministic": true, "parameter_server": {"max_staleness": 2}})",
     "deterministic is true, but strategy is \"parameter_server\", in which updates come in "
     "another "
     "order in each run: set strategy to \"multi_worker_mirrored\", or deterministic to false"},
    {R"({"elastic": {"min_workers": 0}})", "elastic.min_workers must be at least 1, is 0"},
    {R"({"elastic": {"spares": -1}})", "elastic.spares must be at least 0, is -1"},
    {R"({"timeouts": {"join": 0}})",
     "timeouts.join must be a number of seconds from 0.001 to 31536000 (a year), is 0"},
    {R"({"timeouts": {"join": 1e300}})",
     "timeouts.join must be a number of seconds from 0.001 to 31536000 (a year), is 1e+300"},
    {R"({"timeouts": {"join": "10s"}})", "timeouts.join must be a number, is \"10s\""},
    {R"({"timeouts": {"phase": {"data": -1}}})",
     "timeouts.phase.data must be a number of seconds from 0.001 to 31536000 (a year), is -1"},
    {R"({"tls": {"enabled": true, "certificate": "a.pem"}})",
     "tls.key is missing, but TLS is asked for: name a PEM file"},
    {R"({"tls": {"certificate": "a.pem", "key": "b.pem"}})",
     "tls.authority is missing, but TLS is asked for: name a PEM file"},
    {R"({"security": {"insecure": true, "key_file": "run.key"}})",
     "security.insecure is true, but security.key_file is set: leave one of them out"},
    {R"({"status": {"port": 65536}})",
     "status.port must be a port from 1 to 65535, or 0 for none, is 65536"},
    {R"({"status": {"metrics_port": -1}})",
     "status.metrics_port must be a port from 1 to 65535, or 0 for none, is -1"},
    {R"({"status": {"address": ""}})", "status.address must be an IP address, is empty"},
    {R"({"devices": "cpu:2", "strategy": "one_device"})",
     "devices is \"cpu:2\", but strategy is \"one_device\": name one device, or set strategy to "
     "\"mirrored\""},
};

TEST(Job, AnAbsentStalenessMayBeSpeltOut) {
  const auto job = JobFromJson(Json::parse(
      R"({"program": "linear", "parameter_server": {"max_staleness": null, "replicas": 2}})"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->parameter_server, Json::parse(R"({"max_staleness": null, "copies": 2})"))
      << "by today's name";
  EXPECT_THAT(std::string(Message(JobFromJson(Json::parse(R"({"program": "linear",
                  "parameter_server": {"replicas": 2, "copies": 2}})"))
                                      .status())),
              ::testing::HasSubstr("parameter_server.replicas is the older name of \"copies\""));
  EXPECT_THAT(std::string(Message(JobFromJson(Json::parse(R"({"program": "linear",
                  "parameter_server": {"replicas": 3}})"))
                                      .status())),
              ::testing::HasSubstr("parameter_server.replicas must be 1 or 2, is 3"));
}

TEST(Job, IsDeterministicWhereItsStrategyIs) {
  for (const char* right :
       {R"({"deterministic": true})", R"({"deterministic": true, "strategy": "mirrored"})",
        R"({"deterministic": true, "strategy": "parameter_server",
            "parameter_server": {"max_staleness": 0}})",
        R"({"strategy": "parameter_server"})"})
    EXPECT_TRUE(Parse(Json::parse(right)).program == "fashion_mnist") << right;
  // A strategy that the cluster decides on.
  Job job = Parse({{"deterministic", true}});
  EXPECT_TRUE(CheckDeterministic(job).ok());
  job.strategy = StrategyKind::kParameterServer;
  EXPECT_EQ(ExitCodeOf(CheckDeterministic(job)), ExitCode::kConfiguration);
  job.parameter_server = {{"max_staleness", 0}};
  EXPECT_TRUE(CheckDeterministic(job).ok()) << "of a run that is there already";
}

TEST(Job, SaysWhatIsWrong) {
  for (const Mistake& mistake : kMistakes) {
    Json json = *ParseJson(mistake.job, "job");
    json.emplace("program", "fashion_mnist");
    const absl::StatusOr<Job> job = JobFromJson(json);
    EXPECT_EQ(Message(job.status()), mistake.sentence) << mistake.job;
    EXPECT_EQ(ExitCodeOf(job.status()), ExitCode::kConfiguration) << mistake.job;
  }
  EXPECT_EQ(Message(JobFromJson(Json::array()).status()),
            "the top level must be a JSON object, is array");
}

TEST(Job, ChecksTheSyntaxOfDevices) {
  for (const char* right : {"auto", "cpu", "cpu:1", "cpu:1024", "cuda", "cuda:0", "cuda:3,0,1"}) {
    EXPECT_EQ(Parse({{"devices", right}}).devices, right);
  }
  for (const char* wrong :
       {"", "gpu", "CPU", "cpu:", "cpu:0", "cpu:-1", "cpu:1025", "cpu:2x", "cpu:0,1",
        "cuda:", "cuda:a", "cuda:0,", "cuda:,0", "cuda:-1", "cuda:0,0"}) {
    const absl::Status status = JobFromJson({{"program", "linear"}, {"devices", wrong}}).status();
    EXPECT_EQ(Message(status),
              fmt::format("devices must be auto, cpu, cpu:N (N from 1 to 1024), cuda, or cuda: and "
                          "different device numbers (cuda:0,1), is \"{}\"",
                          wrong));
  }
}

TEST(LoadJob, AppliesOverridesInOrder) {
  const JobFile file(R"({"program": "linear", "epochs": 5, "optimizer": {"name": "sgd"}})");
  const absl::StatusOr<Job> job =
      LoadJob(file.path(),
              {"epochs=7", "epochs=8", "devices=cpu:2", "model_dir=runs/a=b", "checkpoint.keep=5",
               "timeouts.phase.data=1.5", "optimizer.momentum=0.9", "program_args.x=[1, 2]",
               "seed=null", "tls.certificate=", "program_args.note=two words"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->epochs, 8);
  EXPECT_EQ(job->devices, "cpu:2");
  EXPECT_EQ(job->model_dir, "runs/a=b");
  EXPECT_EQ(job->checkpoint.keep, 5);
  EXPECT_EQ(job->timeouts.phase[static_cast<int>(Phase::kData)], std::chrono::milliseconds(1500));
  EXPECT_EQ(job->optimizer, Json({{"name", "sgd"}, {"momentum", 0.9}}));
  EXPECT_EQ(job->program_args, Json({{"x", {1, 2}}, {"note", "two words"}}));
  EXPECT_EQ(job->seed, 42u);
}

TEST(LoadJob, ReplacesOneBatchSizeByTheOther) {
  const JobFile file(R"({"program": "linear", "global_batch_size": 5})");
  const auto job = LoadJob(file.path(), {"global_batch_size=null", "per_replica_batch_size=3"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->global_batch_size, std::nullopt);
  EXPECT_EQ(job->per_replica_batch_size, 3);
}

// model_dir/job.json is the resolved job. It keeps its folder when the file is moved.
TEST(LoadJob, KnowsItsFolder) {
  const std::string here = std::filesystem::path(testing::TempDir()).parent_path();
  const JobFile file(R"({"program": "linear", "digests": {"program": "5 bytes, 00"}})");
  const auto job = LoadJob(file.path(), {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->folder, here);
  EXPECT_EQ(job->digests, Json::object()) << "what an earlier run found";
  EXPECT_EQ(LoadJob(file.path(), {"folder=below"})->folder, here + "/below");
  EXPECT_EQ(LoadJob(file.path(), {"folder=/data"})->folder, "/data");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  const auto relative = LoadJob(std::filesystem::path(file.path()).filename(), {});
  std::filesystem::current_path(before);
  EXPECT_EQ(relative->folder, here);
}

// `folder` is where the data are; the program stays beside the job.
TEST(LoadJob, FindsTheProgramBesideTheJob) {
  const std::string here = std::filesystem::path(testing::TempDir()).parent_path();
  const JobFile file(R"({"program": "build/net.so", "folder": "/data"})");
  EXPECT_EQ(LoadJob(file.path(), {})->program, here + "/build/net.so");
  const JobFile exported(R"({"program": {"exported": "net.pt2"}, "folder": "/data"})");
  EXPECT_EQ(LoadJob(exported.path(), {})->program["exported"], here + "/net.pt2");
}

TEST(LoadJob, SaysWhatIsWrong) {
  const JobFile file(R"({"program": "linear"})");
  const std::pair<const char*, std::string> cases[] = {
      {"epochs", "--set \"epochs\" is no assignment: write --set key=value"},
      {"=3", "--set \"=3\" is no assignment: write --set key=value"},
      {"a..b=3", "--set a..b has an empty part in its key: write --set key.inner=value"},
      {".a=3", "--set .a has an empty part in its key: write --set key.inner=value"},
      {"program.torchscript=x",
       "--set program.torchscript: program is \"linear\", which is no object, so it has no keys"},
      {"epocs=3", file.path() + ": unknown key \"epocs\", did you mean \"epochs\"?"},
      {"epochs=many", file.path() + ": epochs must be an integer, is \"many\""},
      {"epochs=-3", file.path() + ": epochs must be at least 1, is -3"},
  };
  for (const auto& [override, sentence] : cases) {
    EXPECT_EQ(Message(LoadJob(file.path(), {override}).status()), sentence);
  }
  // Bytes that are no UTF-8 come out in a message, not as an exception.
  EXPECT_FALSE(LoadJob(file.path(), {"seed=\xff\xfe"}).ok());
  EXPECT_FALSE(LoadJob(file.path(), {"\xff\xfe"}).ok());
}

TEST(LoadJob, NamesTheFile) {
  EXPECT_THAT(std::string(Message(LoadJob("no/such/job.json", {}).status())),
              testing::StartsWith("cannot read no/such/job.json: No such file"));
  const JobFile empty("");
  EXPECT_THAT(std::string(Message(LoadJob(empty.path(), {}).status())),
              HasSubstr(empty.path() + " is not valid JSON: line 1, column 1: it is empty"));
  const JobFile list("[]");
  EXPECT_EQ(Message(LoadJob(list.path(), {}).status()),
            list.path() + ": the top level must be a JSON object, is array");
}

TEST(LoadJob, RefusesAFolder) {
  EXPECT_THAT(std::string(Message(LoadJob(testing::TempDir(), {}).status())),
              testing::StartsWith("cannot read "));
}

TEST(FirstDifferenceOfJobs, NamesTheDottedKey) {
  const Json base = JobToJson(Parse(*ParseJson(kFull, "job")));
  EXPECT_EQ(FirstDifference(base, base), "");
  const std::pair<const char*, const char*> cases[] = {
      {"/epochs", "epochs"},
      {"/program_args/hidden", "program_args.hidden"},
      {"/timeouts/phase/data", "timeouts.phase.data"},
      {"/callbacks/0/name", "callbacks[0].name"},
      {"/program_args/new", "program_args.new"},
  };
  for (const auto& [pointer, key] : cases) {
    Json other = base;
    other[Json::json_pointer(pointer)] = 77;
    EXPECT_EQ(FirstDifference(base, other), key);
    EXPECT_EQ(FirstDifference(other, base), key);
  }
  Json other = base;
  other["callbacks"].push_back("x");
  EXPECT_EQ(FirstDifference(base, other), "callbacks");
}

TEST(FirstDifferenceOfJobs, LeavesHostLocalKeysOut) {
  const Json base = JobToJson(Parse(Json::object()));
  Json other = base;
  for (const char* key : {"/folder", "/devices", "/tls/certificate", "/tls/key", "/tls/authority",
                          "/collective/interface"}) {
    other[Json::json_pointer(key)] = "elsewhere";
  }
  EXPECT_EQ(FirstDifference(base, other), "");
  other["tls"]["enabled"] = true;
  EXPECT_EQ(FirstDifference(base, other), "tls.enabled");
}

TEST(FirstDifferenceOfJobs, ComparesTheFilesThatBothHave) {
  const Json base = JobToJson(
      Parse({{"digests", {{"data.train.x", "4 bytes, 01"}, {"program", "9 bytes, 02"}}}}));
  Json other = base;
  other["digests"].erase("program");
  EXPECT_EQ(FirstDifference(base, other), "");
  EXPECT_EQ(FirstDifference(other, base), "");
  other["digests"]["data.train.x"] = "4 bytes, 03";
  EXPECT_EQ(FirstDifference(base, other), "digests.data.train.x");
}

ClusterConfig Cluster(const char* cluster) {
  const Json json = {{"cluster", Json::parse(cluster)},
                     {"task", {{"type", "worker"}, {"index", 0}}}};
  return *ParseTfConfig(json.dump());
}

TEST(StrategyFor, FollowsTheClusterUnlessTheJobSays) {
  const Job any = Parse(Json::object());
  EXPECT_EQ(*StrategyFor(any, ClusterConfig{}), StrategyKind::kMirrored);
  EXPECT_EQ(*StrategyFor(any, Cluster(R"({"worker": ["a:1"]})")), StrategyKind::kMirrored);
  EXPECT_EQ(*StrategyFor(any, Cluster(R"({"worker": ["a:1", "b:1"]})")),
            StrategyKind::kMultiWorkerMirrored);
  EXPECT_EQ(*StrategyFor(any, Cluster(R"({"worker": ["a:1"], "ps": ["p:1"]})")),
            StrategyKind::kParameterServer);
  EXPECT_EQ(*StrategyFor(Parse({{"strategy", "one_device"}}), ClusterConfig{}),
            StrategyKind::kOneDevice);
  EXPECT_EQ(Message(StrategyFor(Parse({{"strategy", "mirrored"}}),
                                Cluster(R"({"worker": ["a:1", "b:1"]})"))
                        .status()),
            "strategy is \"mirrored\", which trains in one process, but the cluster has 2 members: "
            "set strategy to \"multi_worker_mirrored\", or start one task alone");
  const Job synchronous = Parse({{"parameter_server", {{"max_staleness", 0}}}});
  EXPECT_EQ(*StrategyFor(synchronous, Cluster(R"({"worker": ["a:1"], "ps": ["p:1"]})")),
            StrategyKind::kMultiWorkerMirrored)
      << "of a run that is there already: the chief refuses others";
  EXPECT_TRUE(StrategyFor(synchronous, Cluster(R"({"worker": ["a:1", "b:1"]})")).ok());
  const Job backed_up = Parse({{"parameter_server", {{"copies", 2}}}});
  EXPECT_EQ(
      Message(StrategyFor(backed_up, Cluster(R"({"worker": ["a:1"], "ps": ["p:1"]})")).status()),
      "parameter_server.copies is 2, but the cluster has 1 ps task: set it to 1, or add ps "
      "tasks");
  EXPECT_TRUE(StrategyFor(backed_up, Cluster(R"({"worker": ["a:1"], "ps": ["p:1", "q:1"]})")).ok());
  EXPECT_TRUE(StrategyFor(backed_up, Cluster(R"({"worker": ["a:1"]})")).ok());
}

// docs/job_file.md has one table row for each key, and the default in it is the one in the code.
TEST(JobDocumentation, NamesEveryKeyWithItsDefault) {
  std::ifstream in(testing_support::SourceDir() + "/docs/job_file.md");
  ASSERT_TRUE(in);
  std::map<std::string, std::string> documented;
  bool keys = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("## ", 0) == 0) keys = line == "## Keys";
    if (!keys) continue;
    const size_t key_end = line.find("` | `");
    if (line.rfind("| `", 0) != 0 || key_end == std::string::npos) continue;
    const size_t start = key_end + 5, end = line.find("` |", start);
    documented[line.substr(3, key_end - 3)] = line.substr(start, end - start);
  }
  std::map<std::string, std::string> defaults;
  const std::function<void(const Json&, const std::string&)> add = [&](const Json& json,
                                                                       const std::string& path) {
    for (const auto& [key, value] : json.items()) {
      const std::string place = path.empty() ? key : path + "." + key;
      if (place == "program") continue;  // The one that has no default.
      if (value.is_object() && !value.empty()) {
        add(value, place);
      } else {
        const bool whole = value.is_number_float() && value == value.get<int64_t>();
        defaults[place] = whole ? std::to_string(value.get<int64_t>()) : value.dump();
      }
    }
  };
  add(JobToJson(Parse(Json::object())), "");
  EXPECT_EQ(documented, defaults);
}

}  // namespace
}  // namespace muster
