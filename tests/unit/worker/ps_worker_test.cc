// A worker of a parameter-server job whose chief does not answer any more.
#include "worker/parameter_server/ps_worker.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>

#include "common/base/files/fd.h"
#include "common/collective/group/formation.h"
#include "tests/unit/train/test_program.h"

namespace muster::worker::testing {
namespace {

using muster::testing::Tensors2;
using muster::testing::TestProgram;

// A port that nobody else takes, and where nobody answers.
class DeadPort {
 public:
  DeadPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  const Fd socket_;
  int port_ = 0;
};

// Admits at once. The job ends with `verdict` when the worker asks for work.
class EndingMembership final : public Membership {
 public:
  explicit EndingMembership(absl::Status verdict) : verdict_(std::move(verdict)) {}
  absl::StatusOr<Generation> NextGeneration(int64_t) override {
    Generation generation;
    generation.id = 1;
    generation.replicas_per_rank = {1};
    for (auto& made : collective::MakeThreadCommunicators(1, std::chrono::seconds(10)))
      generation.replicas.push_back(std::move(made));
    return generation;
  }
  void SetPhase(Phase phase, int64_t) override {
    if (phase == Phase::kData) ended_ = true;
  }
  absl::Status Explain(const absl::Status& local) override { return ended_ ? verdict_ : local; }
  void ReportFailure(const absl::Status& failure) override { ADD_FAILURE() << failure; }
  void RequestStop() override {}
  bool StopRequested() const override { return false; }
  absl::Status Finish(int64_t, const absl::Status&) override { return verdict_; }
  bool JobEnded() const override { return ended_; }

 private:
  const absl::Status verdict_;
  std::atomic<bool> ended_ = false;
};

PsWorkerOptions OptionsFor(const std::string& chief) {
  PsWorkerOptions options;
  options.job.program = "test";
  options.job.strategy = StrategyKind::kParameterServer;
  options.job.global_batch_size = 4;
  options.job.timeouts.rejoin = std::chrono::minutes(5);  // so long it would ask
  options.program = [] {
    auto program = std::make_unique<TestProgram>();
    program->on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::zeros({2}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, {{"name", "sgd"}}, 0.1);
      builder.dataset(Split::kTrain, Tensors2(at::zeros({8, 2}), at::zeros({8})));
    };
    program->on_step = [](TestProgram&, Step&, const data::Batch&) {
      ADD_FAILURE() << "there is no batch";
    };
    return program;
  };
  options.devices = {c10::Device(c10::kCPU)};
  options.chief_address = chief;
  return options;
}

absl::Status RunTo(absl::Status verdict, Duration* took) {
  const DeadPort chief;
  auto worker = PsWorker::Make(OptionsFor(chief.address()));
  EXPECT_TRUE(worker.ok()) << worker.status();
  if (!worker.ok()) return worker.status();
  EndingMembership membership(std::move(verdict));
  const MonotonicTime start = Clock::now();
  const absl::Status result = (*worker)->Run({&membership, 7, nullptr});
  *took = Clock::now() - start;
  return result;
}

// All was done by others before it got its first lease, and the chief has gone.
TEST(PsWorker, EndsWithAJobThatIsDone) {
  Duration took{};
  const absl::Status result = RunTo(absl::OkStatus(), &took);
  EXPECT_TRUE(result.ok()) << result;
  EXPECT_LT(Seconds(took), 60);
}

TEST(PsWorker, EndsWithAJobThatFailed) {
  Duration took{};
  const absl::Status result = RunTo(ProgramError("worker 1 has failed"), &took);
  EXPECT_EQ(Message(result), "worker 1 has failed");
  EXPECT_LT(Seconds(took), 60);
}

}  // namespace
}  // namespace muster::worker::testing
