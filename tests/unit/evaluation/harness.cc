#include "tests/unit/evaluation/harness.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <thread>

namespace muster::evaluation {

Folder::Folder() : path_(std::filesystem::temp_directory_path() / "muster-evaluation-XXXXXX") {
  EXPECT_NE(mkdtemp(path_.data()), nullptr);
}
Folder::~Folder() { std::filesystem::remove_all(path_); }

TestChief::TestChief(chief::EvaluationRules rules, const std::string& run_id,
                     const std::string& job, checkpoint::FileSystem* files)
    : rules_(rules), run_id_(run_id), job_(job), files_(files) {
  Start("127.0.0.1:0");
}

TestChief::~TestChief() { StopServer(); }

void TestChief::StopServer() {
  if (server_ != nullptr) server_->Shutdown(Duration::zero());
  server_.reset();
  service_.reset();
}

void TestChief::Restart() {
  StopServer();
  Start(fmt::format("127.0.0.1:{}", port_));
}

void TestChief::Start(const std::string& address) {
  chief::EvaluationServiceOptions options;
  options.cluster_digest = "digest";
  options.run_id = [this] { return run_id_; };
  options.job = job_;
  options.files = files_;
  options.pin = [this](int64_t step) {
    absl::MutexLock lock(&mu_);
    if (std::count(gone_.begin(), gone_.end(), step) > 0) return false;
    pinned_.push_back(step);
    return true;
  };
  options.unpin = [this](int64_t step) {
    absl::MutexLock lock(&mu_);
    EXPECT_EQ(std::erase(pinned_, step), 1u) << "unpinned without having been pinned";
  };
  options.on_metrics = [this](const chief::EvaluationResult& result) {
    absl::MutexLock lock(&mu_);
    results_.push_back(result);
  };
  options.rules = rules_;
  options.hold = std::chrono::milliseconds(300);
  options.tick = std::chrono::milliseconds(20);
  service_ = chief::EvaluationService::Make(std::move(options));
  rpc::ServerOptions server;
  server.address = address;
  auto started = rpc::Server::Start(server, {service_->service()});
  ASSERT_TRUE(started.ok()) << Message(started.status());
  server_ = *std::move(started);
  port_ = server_->port();
}

evaluator::ChiefLinkOptions TestChief::link_options() const {
  evaluator::ChiefLinkOptions options;
  options.task = "evaluator:0";
  options.chief_task = "chief:0";
  options.chief_address = fmt::format("127.0.0.1:{}", port_);
  options.cluster_digest = "digest";
  options.patience = kPatience;
  return options;
}

std::unique_ptr<evaluator::ChiefLink> TestChief::Link() const {
  auto link = evaluator::ChiefLink::Make(link_options());
  EXPECT_TRUE(link.ok());
  return *std::move(link);
}

void TestChief::Forget(int64_t step) {
  absl::MutexLock lock(&mu_);
  gone_.push_back(step);
}

std::vector<int64_t> TestChief::pinned() const {
  absl::MutexLock lock(&mu_);
  return pinned_;
}

std::vector<chief::EvaluationResult> TestChief::results() const {
  absl::MutexLock lock(&mu_);
  return results_;
}

}  // namespace muster::evaluation
