#include "deploy/commands/inspection/status_command.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/peer_text.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/rpc/host.h"
#include "common/telemetry/run_status.h"
#include "deploy/cluster_file.h"
#include "deploy/status/run_files.h"
#include "deploy/status/status_client.h"
#include "deploy/status/status_text.h"

namespace muster {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
// How long to wait for a heartbeat of the owner, which writes one every second.
constexpr Duration kBeat = std::chrono::milliseconds(2500);
// With --watch: how long to wait for the restart of a lost chief.
constexpr Duration kAwaitChief = std::chrono::seconds(30);
constexpr size_t kEvents = 8;

absl::StatusOr<std::string> ChiefOf(const ClusterConfig& config) {
  if (const auto chief = config.chief()) return config.cluster.AddressOf(*chief).ToString();
  return ConfigurationError(
      "no chief and no run is named: give the chief's address (host:port) or a model_dir, or the "
      "cluster with --cluster or TF_CONFIG");
}

class StatusCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "status",
        "Show the tasks, the progress and the last events of a running job, or of the run in a "
        "model_dir (exit code 2: wrong arguments, 138: the chief cannot be reached)");
    app->add_option("TARGET", target_,
                    "The chief's address (host:port), or a model_dir; otherwise --cluster or "
                    "TF_CONFIG names the chief");
    app->add_option("--cluster", cluster_file_, "A file with the cluster, as muster cluster reads")
        ->type_name("FILE");
    app->add_option("--job", job_file_, "The job file, for its tls and security")
        ->type_name("FILE");
    AddSet(app, &overrides_);
    app->add_option("--key-file", key_file_, "The run key of the job")->type_name("FILE");
    app->add_flag("--watch", watch_, "Repeat the output every second until the job ends");
    app->add_flag("--json", json_,
                  "Print one JSON object, for scripts; with --watch, one per line");
    app->add_option("--timeout", timeout_, "Seconds to wait for an answer")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    return app;
  }

  int Run() override {
    terminal_ = isatty(STDOUT_FILENO) == 1 && !json_;
    return ReportStatus("status", Show());
  }

 private:
  absl::Status Show() {
    if (!target_.empty() && !cluster_file_.empty())
      return ConfigurationError(
          "--cluster names the chief, and so does the argument: leave one out");
    std::error_code error;
    if (!target_.empty() && std::filesystem::is_directory(target_, error)) return ShowDirectory();
    MUSTER_RETURN_IF_ERROR(FindChief());
    if (!job_file_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(link_.job, LoadJob(job_file_, overrides_));
    }
    return ShowChief();
  }

  // Sets the address of link_.
  absl::Status FindChief() {
    if (target_.empty()) {
      ClusterConfig config;
      if (cluster_file_.empty()) {
        MUSTER_ASSIGN_OR_RETURN(config, ClusterFromEnvironment(ProcessEnvironment()));
      } else {
        MUSTER_ASSIGN_OR_RETURN(config.cluster, ReadClusterFile(cluster_file_));
        config.task = config.cluster.Tasks().front();
      }
      MUSTER_ASSIGN_OR_RETURN(link_.address, ChiefOf(config));
      return absl::OkStatus();
    }
    const auto at = rpc::SplitHostPort(target_);
    if (!at.ok())
      return ConfigurationError(fmt::format(
          "{} is neither a folder here nor the address of a chief (host:port)", target_));
    link_.address = target_;
    return absl::OkStatus();
  }

  // ---- a running chief

  absl::Status ShowChief() {
    link_.key_file = key_file_;
    std::unique_ptr<status::StatusClient> chief;
    std::optional<proto::StatusReply> last;
    MonotonicTime reached_at = Clock::now();
    while (true) {
      absl::StatusOr<proto::StatusReply> reply = Ask(&chief, FromSeconds(timeout_));
      if (reply.ok()) {
        last = *std::move(reply);
        reached_at = Clock::now();
        Print(*last, {});
        if (!watch_ || last->has_verdict()) return absl::OkStatus();
      } else {
        if (last && ShowEnd(*last)) return absl::OkStatus();
        const bool may_return = watch_ && last && Clock::now() - reached_at < kAwaitChief &&
                                ExitCodeOf(reply.status()) == ExitCode::kRetryable;
        if (!may_return) return reply.status();
        chief.reset();
        LookForChief();
      }
      std::this_thread::sleep_for(kInterval);
    }
  }

  // Finds the process that replaces the chief, if the argument is a model_dir.
  void LookForChief() {
    const auto run = status::ReadRunFiles(target_);
    if (!run.ok()) return;
    link_.chief_pid = status::LocalPidOf(*run);
    LearnRun(*run);
    if (const std::string address = status::ChiefAddressOf(*run); !address.empty())
      link_.address = address;
  }

  absl::StatusOr<proto::StatusReply> Ask(std::unique_ptr<status::StatusClient>* chief,
                                         Duration timeout) {
    if (*chief == nullptr) {
      MUSTER_ASSIGN_OR_RETURN(*chief, status::StatusClient::Open(link_, timeout));
    }
    MUSTER_ASSIGN_OR_RETURN(proto::StatusReply reply, (*chief)->Ask(timeout));
    MUSTER_RETURN_IF_ERROR(CheckRun(reply.run_id()));
    return reply;
  }

  // Keeps the known run id if owner.json cannot be read, for example while it is being written.
  void LearnRun(const status::RunFiles& run) {
    if (std::string id = status::RunIdOf(run); !id.empty()) run_id_ = std::move(id);
  }

  // Returns an error if the chief at the address in the model_dir runs another job. A lost chief
  // leaves its address there.
  absl::Status CheckRun(const std::string& asked) {
    if (run_id_.empty() || asked == run_id_) return absl::OkStatus();
    // A restarted chief may have begun another run.
    if (const auto run = status::ReadRunFiles(target_); run.ok()) LearnRun(*run);
    if (asked == run_id_) return absl::OkStatus();
    return PeerLost(
        fmt::format("the chief of run {} cannot be reached: another job, of run {}, answers at {}",
                    run_id_, SanitizePeerText(asked, 100), link_.address));
  }

  // Called if the chief was reached before but is not reachable now. Returns whether the run has
  // ended.
  bool ShowEnd(const proto::StatusReply& last) {
    const std::string model_dir = status::ModelDirOf(last);
    if (model_dir.empty()) return false;
    std::error_code error;
    const bool named = std::filesystem::is_directory(target_, error);
    const auto run = status::ReadRunFiles(named ? target_ : model_dir);
    if (!run.ok() || !run->result.is_object()) return false;
    const proto::StatusReply ended = status::StatusOfFiles(*run);
    if (ended.run_id() != last.run_id()) return false;
    Print(ended, status::OutcomeLines(*run));
    return true;
  }

  // ---- a model_dir

  absl::Status ShowDirectory() {
    MUSTER_ASSIGN_OR_RETURN(const status::RunFiles run, status::ReadRunFiles(target_));
    for (const std::string& damaged : run.damaged)
      fmt::print(stderr, "muster status: {}\n", damaged);
    if (ShowResult(run)) return absl::OkStatus();
    link_.address = status::ChiefAddressOf(run);
    if (link_.address.empty()) return ShowWithoutChief(run);
    // job.json names the run's key or certificates.
    if (!job_file_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(link_.job, LoadJob(job_file_, overrides_));
    } else if (auto job = JobFromJson(run.job); run.job.is_object() && job.ok()) {
      link_.job = *std::move(job);
    }
    link_.chief_pid = status::LocalPidOf(run);
    LearnRun(run);
    const absl::Status shown = ShowChief();
    if (shown.ok() || ExitCodeOf(shown) != ExitCode::kRetryable) return shown;
    const bool not_begun = !status::HasBegun(run) && !status::OwnerLives(run, kBeat);
    Print(status::StatusOfFiles(run),
          {not_begun ? NotBegun()
                     : fmt::format("The run in {} has no result, and its chief is not reached. "
                                   "This status is from its files.",
                                   target_)});
    return shown;
  }

  std::string NotBegun() const {
    return fmt::format(
        "The run in {} has not begun: its chief was started, and the other tasks never joined it. "
        "Start all tasks again.",
        target_);
  }

  // Shows a run without a status.json: it trains in one process, or its chief has not written the
  // file yet.
  absl::Status ShowWithoutChief(status::RunFiles run) {
    while (true) {
      const bool lives = status::OwnerLives(run, kBeat);
      // The process may have ended in order while OwnerLives waited for a sign of it.
      if (!lives) {
        MUSTER_ASSIGN_OR_RETURN(run, status::ReadRunFiles(target_));
        if (ShowResult(run)) return absl::OkStatus();
      }
      Print(
          status::StatusOfFiles(run),
          {lives
               ? "The run trains in one process, which has no port. This status is from its files."
           : status::HasBegun(run)
               ? "The run has no result, and no process writes to its folder: it ended without a "
                 "result."
               : NotBegun()});
      if (!lives)
        return PeerLost(
            fmt::format("no process runs the job of {}, and it has no result", target_));
      if (!watch_) return absl::OkStatus();
      MUSTER_ASSIGN_OR_RETURN(run, status::ReadRunFiles(target_));
      if (ShowResult(run)) return absl::OkStatus();
    }
  }

  // Returns false if the run has no result.
  bool ShowResult(const status::RunFiles& run) {
    if (!run.result.is_object()) return false;
    Print(status::StatusOfFiles(run), status::OutcomeLines(run));
    return true;
  }

  // ---- output

  void Print(const proto::StatusReply& reply, const std::vector<std::string>& notes) {
    if (json_) {
      fmt::print("{}\n", Dump(StatusToJson(reply)));
      (void)fflush(stdout);
      return;
    }
    std::vector<std::string> lines = status::StatusLines(reply, kEvents);
    lines.insert(lines.end(), notes.begin(), notes.end());
    if (watch_ && terminal_) return Redraw(lines);
    if (watch_ && !first_) fmt::print("\n");
    first_ = false;
    for (const std::string& line : lines) fmt::print("{}\n", line);
    (void)fflush(stdout);
  }

  void Redraw(const std::vector<std::string>& lines) const {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const size_t columns = known ? size.ws_col : 80;
    const size_t rows = known && size.ws_row > 1 ? size.ws_row - 1 : 1000;
    std::string screen = "\x1b[H";
    for (size_t i = 0; i < std::min(rows, lines.size()); ++i)
      screen += status::Cut(lines[i], columns) + "\x1b[K\n";
    fmt::print("{}\x1b[J", screen);
    (void)fflush(stdout);
  }

  std::string target_, cluster_file_, job_file_, key_file_;
  std::vector<std::string> overrides_;
  bool watch_ = false, json_ = false, terminal_ = false, first_ = true;
  double timeout_ = 5;
  status::ChiefChannelOptions link_;
  std::string run_id_;  // The run id of the given model_dir. Empty: any.
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand() { return std::make_unique<StatusCommand>(); }

}  // namespace muster
