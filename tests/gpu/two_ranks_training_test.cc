// Training over two real NCCL ranks: the losses of one rank alone with the same global batch, with
// buckets that go from hooks to NCCL, and the state on its way from one to the other.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/gpu/nccl_ranks.h"
#include "tests/unit/train/odd_replica.h"
#include "tests/unit/train/watched_communicator.h"

namespace muster {
namespace {

using testing::Addresses;
using testing::Fail;
using testing::RankLayout;
using testing::TestProgram;
using testing::WatchedCommunicator;

constexpr Duration kTimeout = std::chrono::seconds(60);

// The one generation of these ranks; nobody takes the place of one that is lost.
class OneGeneration final : public Membership {
 public:
  OneGeneration(std::unique_ptr<collective::Communicator> communicator) {
    generation_.id = 1;
    generation_.rank = communicator->rank();
    generation_.replicas_per_rank.assign(communicator->size(), 1);
    generation_.replicas_on_host = communicator->size();
    generation_.replicas.push_back(std::move(communicator));
  }
  absl::StatusOr<Generation> NextGeneration(int64_t) override {
    if (generation_.replicas.empty()) return PeerLost("there is no other generation");
    return std::exchange(generation_, {});
  }
  void SetPhase(Phase, int64_t) override {}
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  void RequestStop() override {}
  bool StopRequested() const override { return false; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }

 private:
  Generation generation_;
};

// How many buckets had gone when the gradient of the first layer's output was there, by step.
using FromHooks = std::vector<int>;

// Two layers, and each parameter a bucket of its own.
void Network(TestProgram& p, WatchedCommunicator* watched, FromHooks* from_hooks) {
  p.on_build = [](TestProgram& self, Builder& builder) {
    at::manual_seed(3);
    const at::Tensor x = at::randn({17, 4});
    const at::Tensor y = x.sum(1).tanh() + 0.5f;
    self.model->parameter("w1", at::randn({4, 8}) * 0.5);
    self.model->parameter("b1", at::zeros({8}));
    self.model->parameter("w2", at::randn({8}) * 0.5);
    self.model->parameter("b2", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] =
        builder.optimizer("sgd", {"net"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.05);
    builder.dataset(Split::kTrain, testing::Tensors2(x, y));
  };
  p.on_step = [=](TestProgram& self, Step& step, const data::Batch& batch) {
    testing::Tensors& model = *self.model;
    const at::Tensor hidden = at::matmul(batch[0], model["w1"]) + model["b1"];
    if (watched != nullptr) {
      const int before = watched->all_reduces;
      hidden.register_hook(
          [=](const at::Tensor&) { from_hooks->push_back(watched->all_reduces - before); });
    }
    const at::Tensor prediction = at::matmul(hidden.tanh(), model["w2"]) + model["b2"];
    step.minimize(self.optimizers["sgd"], (prediction - batch[1]).square());
  };
}

testing::RunOptions Options(const c10::Device& device) {
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 7;  // four examples and three, at the end of an epoch two and one
  options.job.epochs = 4;
  options.job.collective.bucket_bytes = options.job.collective.first_bucket_bytes = 4;
  options.devices = {device};
  return options;
}

void ExpectSameLosses(const testing::RunResult& together, const testing::RunResult& alone) {
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  const std::vector<double> losses = together.recorder.losses(), expected = alone.recorder.losses();
  ASSERT_EQ(losses.size(), 12u);
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_LT(losses.back(), losses.front());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i + 1;
  for (const auto& [name, value] : alone.replicas.at(0))
    EXPECT_TRUE(at::allclose(together.replicas.at(0).at(name), value, 1e-4, 1e-5)) << name;
}

int TrainTogether(const RankLayout& layout, int rank, transport::DataListener& listener,
                  const Addresses& addresses) {
  const c10::Device device = testing::DeviceOf(layout, rank);
  auto joined = testing::Join(layout, rank, listener, addresses, kTimeout);
  if (!joined.ok()) return Fail(joined.status());
  auto communicator = std::make_unique<WatchedCommunicator>(*std::move(joined));
  WatchedCommunicator* const watched = communicator.get();
  FromHooks from_hooks;
  testing::RunOptions options = Options(device);
  options.membership = [&] { return std::make_unique<OneGeneration>(std::move(communicator)); };
  const auto together =
      testing::Run(options, [&](TestProgram& p) { Network(p, watched, &from_hooks); });
  if (!together.status.ok()) return Fail(together.status);
  // b2 and w2: the first layer's own gradients come later.
  EXPECT_EQ(from_hooks.front(), 0) << "in the first step";
  EXPECT_THAT(std::vector<int>(from_hooks.begin() + 1, from_hooks.end()), ::testing::Each(2));
  if (rank != 0) return testing::CodeOfExpectations();  // only rank 0 has the losses
  const auto alone = [](const c10::Device& on) {
    return testing::Run(Options(on), [](TestProgram& p) { Network(p, nullptr, nullptr); });
  };
  ExpectSameLosses(together, alone(device));
  ExpectSameLosses(together, alone(at::kCPU));
  return testing::CodeOfExpectations();
}

class TwoRanksTraining : public testing::RanksTest,
                         public ::testing::WithParamInterface<RankLayout> {
 protected:
  using Rank = int (*)(const RankLayout&, int, transport::DataListener&, const Addresses&);
  void RunRanks(Rank body) {
    const RankLayout& layout = GetParam();
    testing::Processes processes(layout.ranks,
                                 [&](int rank, auto& listener, const Addresses& addresses, int) {
                                   return body(layout, rank, listener, addresses);
                                 });
    ExpectAll(processes, layout);
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, TwoRanksTraining,
                         ::testing::Values(testing::kTwoOnCpu, testing::kTwoOnOne,
                                           testing::kTwoOnTwo),
                         ::testing::PrintToStringParamName());

TEST_P(TwoRanksTraining, GivesTheLossesOfOneRankAlone) { RunRanks(TrainTogether); }

int Transfer(const RankLayout& layout, int rank, transport::DataListener& listener,
             const Addresses& addresses) {
  const c10::Device device = testing::DeviceOf(layout, rank);
  auto joined = testing::Join(layout, rank, listener, addresses, kTimeout);
  if (!joined.ok()) return Fail(joined.status());
  WatchedCommunicator communicator(*std::move(joined));
  const auto newest = testing::BitsOf(*testing::OddReplica(device, 1));
  // Kept until all of the newer state is there, or overwritten.
  for (const int64_t staged : {int64_t{0}, int64_t{256} << 20}) {
    const auto replica = testing::OddReplica(device, rank == 0 ? 1 : 2);
    LoopState state = testing::OddState(*replica, rank == 0 ? 12 : 11);
    int moments = 0;
    TransferOptions options;
    options.piece_bytes = 256;
    options.staged_bytes = staged;
    options.moment = [&] { ++moments; };
    const absl::Status status = CatchProgramErrors(
        "the transfer", [&] { BroadcastState(replica.get(), &communicator, 0, &state, options); });
    if (!status.ok()) return Fail(status);
    EXPECT_EQ(state.last_step(), 12);
    EXPECT_EQ(testing::BitsOf(*replica), newest);
    EXPECT_GT(moments, 50) << "before the first piece, and after each";
    EXPECT_LE(communicator.most, 256);
  }
  return testing::CodeOfExpectations();
}

TEST_P(TwoRanksTraining, BeginsWithTheOwnersBitsWhichTravelInPieces) { RunRanks(Transfer); }

}  // namespace
}  // namespace muster
