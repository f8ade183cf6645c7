// `muster launch` as a process, with tasks that do what a script says (fake_role.cc).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "deploy/launcher/processes/child.h"
#include "deploy/launcher/processes/lines.h"
#include "muster/json.h"
#include "tests/paths.h"
#include "tests/unit/launcher/deadline.h"

namespace muster::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Launch : public testing::Test {
 protected:
  Launch() {
    std::string name = std::filesystem::temp_directory_path() / "muster-launch-XXXXXX";
    folder_ = mkdtemp(name.data());
    std::filesystem::create_directory(folder_ + "/bin");
    for (const char* role : {"chief", "worker", "ps", "evaluator"}) {
      std::filesystem::create_symlink(FAKE_ROLE, folder_ + "/bin/muster-" + role);
    }
    WriteJob(Json::object());
  }
  ~Launch() override {
    launcher_.reset();  // its tasks die with it
    std::filesystem::remove_all(folder_);
  }

  void WriteJob(Json job) {
    job["program"] = "fake";
    std::ofstream(folder_ + "/job.json") << job.dump();
  }
  void Script(const std::string& task, const std::string& text) {
    std::ofstream(folder_ + "/" + task) << text;
  }

  void Start(std::vector<std::string> arguments) {
    ChildOptions options;
    options.arguments = {testing_support::BinDir() + "/muster",
                         "launch",
                         "--job",
                         folder_ + "/job.json",
                         "--bin-dir",
                         folder_ + "/bin"};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.environment = environment_;
    options.environment["FAKE_SCRIPTS"] = folder_;
    auto child = Child::Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    launcher_ = std::make_unique<Child>(*std::move(child));
  }

  // Reads output until `enough`, or its end.
  template <typename Enough>
  void ReadUntil(Enough enough) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!enough() && (launcher_->out || launcher_->err)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "so far:\n" << Text();
      pollfd polled[] = {{launcher_->out.get(), POLLIN, 0}, {launcher_->err.get(), POLLIN, 0}};
      poll(polled, 2, 1000);
      Take(polled[0].revents, launcher_->out, out_splitter_, out_);
      Take(polled[1].revents, launcher_->err, err_splitter_, err_);
    }
  }
  static void Take(short events, Fd& fd, LineSplitter& splitter, std::vector<std::string>& lines) {
    if (events == 0) return;
    char bytes[4096];
    const ssize_t size = read(fd.get(), bytes, sizeof bytes);
    auto on_line = [&](std::string_view line) { lines.emplace_back(line); };
    if (size > 0) splitter.Append({bytes, static_cast<size_t>(size)}, on_line);
    if (size == 0) fd.Reset();
  }
  void AwaitLine(const std::string& line) {
    auto there = [&] { return Has(line); };
    ReadUntil(there);
    ASSERT_TRUE(there()) << "no line '" << line << "' in:\n" << Text();
  }
  bool Has(const std::string& line) const {
    return std::count(out_.begin(), out_.end(), line) + std::count(err_.begin(), err_.end(), line);
  }
  // The number in the first line "<prefix> pid N", or in the second one for `nth` 2.
  pid_t PidOf(const std::string& prefix, int nth = 1) {
    pid_t pid = 0;
    ReadUntil([&] {
      int seen = 0;
      for (const std::string& line : out_) {
        if (!line.starts_with(prefix + " pid ") || ++seen != nth) continue;
        pid = std::stoi(line.substr(prefix.size() + 5));
      }
      return pid != 0;
    });
    return pid;
  }
  // Its exit code (128 + signal), after the end of its output.
  int Finish() {
    ReadUntil([] { return false; });
    return WaitForExit();
  }
  int WaitForExit() {
    std::optional<ExitReport> report;
    while (!(report = launcher_->Reap())) {
      siginfo_t info;
      waitid(P_PID, static_cast<id_t>(launcher_->pid()), &info, WEXITED | WNOWAIT);
    }
    return report->code;
  }
  std::string Text() const {
    std::string text;
    for (const auto* lines : {&out_, &err_}) {
      for (const std::string& line : *lines) text += line + '\n';
    }
    return text;
  }
  std::string ReadFile(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Makes the launcher see these GPUs (fake_nvml.cc).
  void SetGpus(const std::string& gpus) {
    environment_["FAKE_GPUS"] = gpus;
    environment_["LD_LIBRARY_PATH"] = std::filesystem::path(FAKE_NVML).parent_path();
  }

  std::string folder_;
  std::map<std::string, std::string> environment_;
  std::unique_ptr<Child> launcher_;
  LineSplitter out_splitter_, err_splitter_;
  std::vector<std::string> out_, err_;
};

// Another process. Its descriptor reports its end, although this process is not its parent.
class Watched {
 public:
  explicit Watched(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  bool valid() const { return static_cast<bool>(fd_); }
  bool EndsWithin(std::chrono::milliseconds limit) const {
    pollfd ended = {fd_.get(), POLLIN, 0};
    return poll(&ended, 1, static_cast<int>(limit.count())) == 1;
  }
  bool ended() const { return EndsWithin(std::chrono::milliseconds(0)); }

 private:
  Fd fd_;
};

TEST_F(Launch, PrefixesLinesAndExitsWithTheChiefsCode) {
  Script("chief-0", "out to stdout\nerr to stderr\nargs\nexit 3");
  Script("worker-0", "raw without a newline");
  Start({"--workers", "1", "--set", "checkpoint.keep=1", "--set", "program_args.x=[2, 3]"});
  EXPECT_EQ(Finish(), 3);
  EXPECT_THAT(out_, Contains("[chief 0] to stdout"));
  EXPECT_THAT(err_, Contains("[chief 0] to stderr"));
  EXPECT_THAT(out_, Contains("[worker 0] without a newline"));
  EXPECT_THAT(out_, Contains("[chief 0] --job " + folder_ +
                             "/job.json --set checkpoint.keep=1 --set program_args.x=[2, 3]"));
  EXPECT_THAT(Text(), HasSubstr("muster: failed after 0:00, exit code 3: chief 0 exited with"));
}

TEST_F(Launch, GivesEachTaskItsTfConfig) {
  const std::vector<std::string> tasks = {"chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"};
  for (std::string task : tasks) {
    task[task.find(' ')] = '-';
    Script(task, "env TF_CONFIG\nenv MUSTER_PROGRESS_FD");
  }
  Start({"--workers", "2", "--ps", "1", "--evaluator"});
  EXPECT_EQ(Finish(), 0);
  std::set<std::string> addresses;
  Json cluster;
  for (const std::string& task : tasks) {
    const std::string prefix = "[" + task + "] TF_CONFIG=";
    const auto line = std::find_if(out_.begin(), out_.end(),
                                   [&](const auto& text) { return text.starts_with(prefix); });
    ASSERT_NE(line, out_.end()) << task << " in\n" << Text();
    const Json config = Json::parse(line->substr(prefix.size()));
    EXPECT_EQ(config["task"]["type"], task.substr(0, task.find(' ')));
    EXPECT_EQ(config["task"]["index"], std::stoi(task.substr(task.find(' '))));
    if (cluster.is_null()) cluster = config["cluster"];
    EXPECT_EQ(config["cluster"], cluster);
    EXPECT_THAT(out_, Contains("[" + task + "] MUSTER_PROGRESS_FD=3"));
  }
  for (const Json& job : cluster) {
    for (const std::string address : job) {
      EXPECT_THAT(address, testing::StartsWith("127.0.0.1:"));
      EXPECT_TRUE(addresses.insert(address).second) << address;
    }
  }
  EXPECT_EQ(addresses.size(), 5u);
}

TEST_F(Launch, DividesTheGpusAmongTheMembers) {
  for (const char* task : {"chief-0", "worker-0", "evaluator-0"})
    Script(task, "env CUDA_VISIBLE_DEVICES");
  SetGpus("GPU-1 GPU-2");
  Start({"--workers", "1", "--evaluator"});
  EXPECT_EQ(Finish(), 0) << Text();
  EXPECT_THAT(out_, Contains("[chief 0] CUDA_VISIBLE_DEVICES=GPU-1"));
  EXPECT_THAT(out_, Contains("[worker 0] CUDA_VISIBLE_DEVICES=GPU-2"));
  EXPECT_THAT(out_, Contains("[evaluator 0] CUDA_VISIBLE_DEVICES="));
}

TEST_F(Launch, KeepsToTheGpusThatItIsShown) {
  for (const char* task : {"chief-0", "worker-0"}) Script(task, "env CUDA_VISIBLE_DEVICES");
  SetGpus("GPU-1 GPU-2 GPU-3");
  environment_["CUDA_VISIBLE_DEVICES"] = "2,GPU-1";
  Start({"--workers", "auto"});
  EXPECT_EQ(Finish(), 0) << Text();
  EXPECT_THAT(out_, Contains("[chief 0] CUDA_VISIBLE_DEVICES=2"));
  EXPECT_THAT(out_, Contains("[worker 0] CUDA_VISIBLE_DEVICES=GPU-1"));
}

TEST_F(Launch, StartsOneMemberForEachGpu) {
  Script("chief-0", "env CUDA_VISIBLE_DEVICES");
  SetGpus("GPU-1");
  Start({"--workers", "auto"});
  EXPECT_EQ(Finish(), 0) << Text();
  EXPECT_THAT(out_, Contains("[chief 0] CUDA_VISIBLE_DEVICES=GPU-1"));
  EXPECT_THAT(Text(), Not(HasSubstr("worker")));
}

TEST_F(Launch, RefusesADriverThatDoesNotWork) {
  SetGpus("init:18");
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(Text(), HasSubstr("Driver/library version mismatch"));
}

TEST_F(Launch, FollowsWorkerZeroWithoutAChief) {
  Script("worker-0", "env MUSTER_PROGRESS_FD\nexit 1");
  Start({"--workers", "2", "--no-chief"});
  EXPECT_EQ(Finish(), 1);
  EXPECT_THAT(out_, Contains("[worker 0] MUSTER_PROGRESS_FD=3"));
}

TEST_F(Launch, WritesALogForEachTask) {
  WriteJob({{"model_dir", "elsewhere"}});
  Script("chief-0", "out first\nerr second");
  Script("worker-1", "out third");
  Start({"--workers", "2", "--set", "model_dir=" + folder_ + "/run"});
  EXPECT_EQ(Finish(), 0);
  EXPECT_THAT(ReadFile("run/logs/chief-0.log"), HasSubstr("first\n"));
  EXPECT_THAT(ReadFile("run/logs/chief-0.log"), HasSubstr("second\n"));
  EXPECT_THAT(ReadFile("run/logs/worker-1.log"), HasSubstr("third\n"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/run/logs/worker-0.log"));
  EXPECT_THAT(Text(), HasSubstr("logs in " + folder_ + "/run/logs"));
}

TEST_F(Launch, ShowsTheChiefsProgress) {
  Script(
      "chief-0",
      "progress {\"kind\": \"epoch\", \"epoch\": 1, \"epochs\": 5, \"metrics\": {\"loss\": 0.25}}\n"
      "progress not JSON\nprogress {\"kind\": \"end\"}\nexit 0");
  Start({"--workers", "0"});
  EXPECT_EQ(Finish(), 0);
  EXPECT_THAT(err_, Contains("[chief 0] epoch 2/5: loss 0.2500"));
}

TEST_F(Launch, PassesOnAFloodUntorn) {
  Script("chief-0", "flood 5000");
  Script("worker-0", "flood 5000");
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 0);
  for (const char* task : {"[chief 0] ", "[worker 0] "}) {
    int next = 0;
    for (const std::string& line : out_) {
      if (!line.starts_with(task)) continue;
      ASSERT_EQ(line, task + std::to_string(next++) + ' ' + std::string(200, 'x'));
    }
    EXPECT_EQ(next, 5000);
  }
}

TEST_F(Launch, ForwardsTheFirstSignalToAll) {
  for (const char* task : {"chief-0", "worker-0"}) {
    Script(task, "on 2 143\nout ready\nwait");
  }
  Start({"--workers", "1"});
  AwaitLine("[chief 0] ready");
  AwaitLine("[worker 0] ready");
  kill(launcher_->pid(), SIGINT);
  EXPECT_EQ(Finish(), 143);
  EXPECT_THAT(Text(), HasSubstr("muster: preempted after"));
}

TEST_F(Launch, KillsAtTheSecondSignal) {
  for (const char* task : {"chief-0", "worker-0"}) {
    Script(task, "ignore 2\nignore 15\npid\nwait");
  }
  Start({"--workers", "1"});
  const Watched chief(PidOf("[chief 0]")), worker(PidOf("[worker 0]"));
  ASSERT_TRUE(chief.valid() && worker.valid());
  kill(launcher_->pid(), SIGINT);
  AwaitLine("muster: SIGINT: asked all tasks to stop; a second SIGINT ends them at once");
  EXPECT_FALSE(chief.ended());
  kill(launcher_->pid(), SIGINT);
  EXPECT_EQ(Finish(), 137);
  EXPECT_TRUE(chief.ended());
  EXPECT_TRUE(worker.ended());
}

// Slurm and container runtimes send signals while the tasks save.
TEST_F(Launch, LetsTheTasksSaveWhateverSignalComesAgain) {
  for (const char* task : {"chief-0", "worker-0"}) Script(task, "ignore 2\non 15 143\npid\nwait");
  Start({"--workers", "1"});
  const pid_t chief = PidOf("[chief 0]"), worker = PidOf("[worker 0]");
  kill(launcher_->pid(), SIGINT);
  AwaitLine("muster: SIGINT: asked all tasks to stop; a second SIGINT ends them at once");
  for (const int signal : {SIGTERM, SIGHUP, SIGTERM}) kill(launcher_->pid(), signal);
  for (const pid_t task : {worker, chief}) kill(task, SIGTERM);  // they have saved
  EXPECT_EQ(Finish(), 143);
  EXPECT_THAT(err_, Not(Contains(HasSubstr("killing"))));
}

TEST_F(Launch, KillsAndNamesWhoIgnoresTheEnd) {
  Script("chief-0", "on 15 143\nout ready\nwait");
  Script("worker-0", "ignore 15\npid\nwait");
  Start({"--workers", "1", "--end-grace", "0.1"});
  AwaitLine("[chief 0] ready");
  const Watched worker(PidOf("[worker 0]"));
  kill(launcher_->pid(), SIGTERM);
  EXPECT_EQ(Finish(), 143);
  EXPECT_THAT(
      err_,
      Contains("muster: killed the tasks that still ran 0.1 s after chief 0 ended: worker 0"));
  EXPECT_TRUE(worker.ended());
}

TEST_F(Launch, ReportsAKilledWorkerAndTheChiefsVerdict) {
  // The chief's own way of learning of the loss is not the launcher's business: it hangs here.
  Script("chief-0", "on 15 143\nout ready\nwait");
  Script("worker-0", "pid\nwait");
  Start({"--workers", "1", "--verdict-timeout", "0.1"});
  AwaitLine("[chief 0] ready");
  kill(PidOf("[worker 0]"), SIGKILL);
  EXPECT_EQ(Finish(), 137) << Text();
  EXPECT_THAT(err_, Contains("muster: worker 0 was killed by SIGKILL"));
  EXPECT_THAT(Text(), HasSubstr("chief 0 reached no verdict within 0.1 s: stopping all"));
}

TEST_F(Launch, RepeatsTheChiefsRootCause) {
  Script("chief-0", "err 12:00:00 E | ROOT CAUSE: worker 0 was lost\nout noise\nexit 138");
  Script("worker-0", "kill 6");
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 138);
  EXPECT_THAT(err_, Contains("muster: ROOT CAUSE: worker 0 was lost"));
}

TEST_F(Launch, DoesNotMindTheEndOfAnEvaluator) {
  // However it ends, the job's verdict is the chief's, which ends after it.
  for (const char* end : {"kill 9", "exit 138", "exit 2"}) {
    Script("evaluator-0", end);
    Script("chief-0", "on 15 143\nout ready\nwait");
    out_.clear();
    err_.clear();
    Start({"--workers", "0", "--evaluator", "--verdict-timeout", "0.1"});
    AwaitLine("[chief 0] ready");
    ReadUntil([&] { return Text().find("the job continues without it") != std::string::npos; });
    kill(launcher_->pid(), SIGTERM);
    EXPECT_EQ(Finish(), 143) << end;
    EXPECT_THAT(Text(), Not(HasSubstr("reached no verdict")));
  }
}

TEST_F(Launch, LetsTheEvaluatorGoWhenTheChiefHasEnded) {
  WriteJob({{"model_dir", folder_ + "/run"}});
  Script("evaluator-0", "ignore 15\nout last word\npid\nwait");
  Script("chief-0", "on 15 0\npid\nwait");
  Start({"--workers", "0", "--evaluator", "--end-grace", "0.1"});
  const pid_t chief = PidOf("[chief 0]"), evaluator = PidOf("[evaluator 0]");
  ASSERT_TRUE(chief != 0 && evaluator != 0);  // the evaluator ignores by now what asks it to end
  kill(chief, SIGTERM);
  EXPECT_EQ(Finish(), 0);
  EXPECT_THAT(err_, Contains(testing::StartsWith("muster: killed the tasks that still ran 0.1 s "
                                                 "after chief 0 ended: evaluator 0")));
  EXPECT_THAT(ReadFile("run/logs/evaluator-0.log"), HasSubstr("last word\n"));
}

TEST_F(Launch, LeavesNobodyWhenItIsKilled) {
  for (const char* task : {"chief-0", "worker-0", "worker-1"}) {
    Script(task, "ignore 1\nignore 2\nignore 15\npid\nwait");
  }
  Start({"--workers", "2"});
  std::vector<Watched> tasks;
  for (const char* task : {"[chief 0]", "[worker 0]", "[worker 1]"}) {
    tasks.emplace_back(PidOf(task));
    ASSERT_TRUE(tasks.back().valid());
    EXPECT_FALSE(tasks.back().ended());
  }
  kill(launcher_->pid(), SIGKILL);  // it alone: Child::Signal would reach a process group
  EXPECT_EQ(WaitForExit(), 137);
  for (const Watched& task : tasks) EXPECT_TRUE(task.EndsWithin(kDeadline));
}

TEST_F(Launch, EndsWhatATaskLeftInItsGroup) {
  Script("chief-0", "on 15 0\nspawn\nwait");
  Start({"--workers", "0"});
  const Watched orphan(PidOf("[chief 0]"));
  ASSERT_TRUE(orphan.valid());
  kill(launcher_->pid(), SIGTERM);
  EXPECT_EQ(Finish(), 0);
  EXPECT_TRUE(orphan.EndsWithin(kDeadline));
}

TEST_F(Launch, StopsWhenNobodyReadsAnyMore) {
  Script("chief-0", "on 15 143\nout ready\nflood 100000");
  Start({"--workers", "0"});
  AwaitLine("[chief 0] ready");
  launcher_->out.Reset();
  EXPECT_EQ(Finish(), 143);
  EXPECT_THAT(err_,
              Contains("muster: the reader of this output has closed it: asked all tasks to stop; "
                       "SIGINT ends them at once"));
}

TEST_F(Launch, RefusesWhatCannotStart) {
  std::filesystem::remove(folder_ + "/bin/muster-ps");
  Script("chief-0", "out started");
  Start({"--workers", "1", "--ps", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(err_, Contains("muster launch: cannot start ps 0: " + folder_ +
                             "/bin/muster-ps is missing; this installation cannot run ps tasks"));
  EXPECT_THAT(out_, Not(Contains("[chief 0] started")));
}

TEST_F(Launch, RefusesAMissingJobAndALogFolderThatCannotBe) {
  std::filesystem::remove(folder_ + "/job.json");
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(Text(), HasSubstr("job.json"));

  std::ofstream(folder_ + "/file") << "in the way";
  WriteJob({{"model_dir", folder_ + "/file"}});
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(Text(), HasSubstr("cannot make the folder for logs " + folder_ + "/file/logs"));
}

TEST_F(Launch, RefusesAJobBeforeAnythingStarts) {
  Script("chief-0", "out started");
  WriteJob({{"epoch", 3}});
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(Text(), HasSubstr("epochs"));  // the nearest key

  WriteJob({{"strategy", "mirrored"}});
  Start({"--workers", "1"});
  EXPECT_EQ(Finish(), 2);
  EXPECT_THAT(Text(), HasSubstr("strategy is \"mirrored\""));
  EXPECT_THAT(out_, Not(Contains("[chief 0] started")));
}

TEST_F(Launch, StartsATaskThatDiesAgainAndGivesUpInTheEnd) {
  Script("chief-0", "on 15 143\nout ready\nwait");
  Script("worker-0", "pid\nwait");
  Start({"--workers", "1", "--restart", "on-failure", "--max-restarts", "1", "--verdict-timeout",
         "0.1"});
  AwaitLine("[chief 0] ready");  // from here on it can be asked to stop
  for (const int nth : {1, 2}) {
    const pid_t worker = PidOf("[worker 0]", nth);
    ASSERT_GT(worker, 0) << Text();
    kill(worker, SIGKILL);
  }
  EXPECT_EQ(Finish(), 128 + SIGKILL) << "the worker's, not the code of the chief that was stopped";
  EXPECT_THAT(err_, Contains("[chief 0] exits with 143 at signal 15"));
  EXPECT_THAT(Text(), HasSubstr("exit code 137: worker 0 was killed by SIGKILL"));
  EXPECT_THAT(out_, Contains(testing::StartsWith("[worker 0] pid ")).Times(2));
  EXPECT_THAT(Text(), HasSubstr("muster: starting worker 0 again (1 of at most 1 times)"));
  EXPECT_THAT(Text(), HasSubstr("worker 0 was killed by SIGKILL, and chief 0 reached no verdict"));
}

TEST_F(Launch, StartsAChiefThatDiesAgain) {
  Script("chief-0", "out born\nkill 9\n");
  Script("worker-0", "on 15 143\nwait\n");  // a chief that was killed asks nobody to stop
  Start({"--workers", "1", "--restart", "on-failure", "--max-restarts", "1", "--end-grace", "0.1"});
  EXPECT_EQ(Finish(), 128 + SIGKILL);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), "[chief 0] born"), 2);
  EXPECT_THAT(Text(), HasSubstr("muster: starting chief 0 again (1 of at most 1 times)"));
  EXPECT_THAT(Text(), HasSubstr("exit code 137: chief 0 was killed by SIGKILL"));
  EXPECT_THAT(err_, Contains("muster: killed the tasks that still ran 0.1 s after chief 0 ended: "
                             "worker 0"));
  EXPECT_THAT(err_, Contains("muster: others: worker 0 was killed by SIGKILL"));
}

}  // namespace
}  // namespace muster::launcher
