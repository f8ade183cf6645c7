// Generations one after the other: a new process that joins after the program has unfrozen
// parameters, and a save that a lost peer cut short.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <future>
#include <thread>

#include "common/collective/group/formation.h"
#include "common/train/state/snapshot.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using collective::Communicator;
using testing::KeptCheckpoints;
using testing::Recorder;
using testing::TestProgram;

constexpr int64_t kSteps = 6;

// The generations of one process, made by the test.
class Scripted : public Membership {
 public:
  std::deque<Generation> generations;
  std::vector<int64_t> last_steps;  // The arguments of NextGeneration.
  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    last_steps.push_back(last_step);
    if (generations.empty()) return AbortedError();
    Generation next = std::move(generations.front());
    generations.pop_front();
    return next;
  }
  void SetPhase(Phase, int64_t) override {}
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  bool JobEnded() const override { return generations.empty(); }
  void RequestStop() override { stop_ = true; }
  bool StopRequested() const override { return stop_; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }

 private:
  static absl::Status AbortedError() { return PeerLost("no generation is left"); }
  std::atomic<bool> stop_ = false;
};

struct Process {
  Recorder recorder;
  KeptCheckpoints kept;
  Scripted membership;
  TestProgram* program = nullptr;
  std::unique_ptr<Trainer> trainer;
  absl::Status outcome;
};

using OnStep = std::function<void(Step&)>;  // at the end of a step's body

// "base" is unfrozen in step 2; "seen" counts the steps of each replica.
std::unique_ptr<Process> MakeProcess(OnStep on_step = {}, TrainerOptions options = {}) {
  auto process = std::make_unique<Process>();
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = kSteps;
  options.devices = {c10::Device(at::kCPU)};
  options.observers = {&process->recorder};
  options.checkpoints = &process->kept;
  options.factory = [on_step, process = process.get()] {
    auto program = std::make_unique<TestProgram>();
    process->program = program.get();
    program->on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("base", at::full({2}, 0.5)).set_requires_grad(false);
      self.model->parameter("head", at::ones({2}));
      self.model->buffer("seen", at::zeros({}, at::kLong));
      builder.model("net", self.model);
      builder.buffer("net.seen", BufferMode::kPerReplica);
      self.optimizers["adam"] = builder.optimizer("adam", {"net"}, "adam", 0.05);
      const at::Tensor x = at::arange(24, at::kFloat).reshape({12, 2}) / 24;
      builder.dataset(Split::kTrain, testing::Tensors2(x, x.sum(1)));
    };
    program->on_step = [on_step](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor base = (*self.model)["base"];
      if (step.number() == 2) (*self.model)["base"].set_requires_grad(true);
      (*self.model)["seen"].add_(1);
      const at::Tensor prediction = at::matmul(batch[0] * base, (*self.model)["head"]);
      step.minimize(self.optimizers["adam"], (prediction - batch[1]).square());
      if (on_step) on_step(step);
    };
    return program;
  };
  auto trainer = Trainer::Make(std::move(options));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  process->trainer = *std::move(trainer);
  return process;
}

// These processes form a generation, the next of each; `owner` has the newest state. The
// communicators live as long as the generation does.
std::vector<Communicator*> AddGeneration(const std::vector<Process*>& processes, int owner) {
  auto all = collective::MakeThreadCommunicators(static_cast<int>(processes.size()),
                                                 std::chrono::seconds(20));
  std::vector<Communicator*> communicators;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    Generation generation;
    generation.rank = static_cast<int>(rank);
    generation.replicas_per_rank.assign(processes.size(), 1);
    generation.owner = owner;
    communicators.push_back(all[rank].get());
    generation.replicas.push_back(std::move(all[rank]));
    processes[rank]->membership.generations.push_back(std::move(generation));
  }
  return communicators;
}

void RunAll(const std::vector<Process*>& processes) {
  std::vector<std::thread> threads;
  for (Process* process : processes) {
    threads.emplace_back(
        [process] { process->outcome = process->trainer->Run(&process->membership); });
  }
  for (std::thread& thread : threads) thread.join();
}

void ExpectSame(const Process& a, const Process& b) {
  for (const auto& [name, value] : testing::Values(*b.program)) {
    if (name == "seen") continue;
    EXPECT_TRUE(at::equal(testing::Values(*a.program).at(name), value)) << name;
  }
  const checkpoint::Snapshot &mine = a.kept.kept.back(), &other = b.kept.kept.back();
  ASSERT_EQ(mine.optimizer.tensors.size(), other.optimizer.tensors.size());
  for (const checkpoint::Tensor& slot : other.optimizer.tensors)
    EXPECT_TRUE(at::equal(ViewOf(*mine.optimizer.Find(slot.name)), ViewOf(slot))) << slot.name;
}

std::unique_ptr<Process> Whole() {
  auto whole = MakeProcess(), other = MakeProcess();
  AddGeneration({whole.get(), other.get()}, 0);
  RunAll({whole.get(), other.get()});
  EXPECT_TRUE(whole->outcome.ok()) << whole->outcome;
  return whole;
}

TEST(Generations, ANewProcessTrainsWhatTheProgramHasUnfrozenBefore) {
  std::vector<Communicator*> first;
  std::unique_ptr<Process> lost, survivor, added;
  // Lost in step 4: base has slots, which build() of the new process did not make.
  lost = MakeProcess([&](Step& step) {
    if (step.number() == 4) first[1]->Abort(PeerLost("worker 1 is gone"));
  });
  survivor = MakeProcess();
  added = MakeProcess();
  first = AddGeneration({survivor.get(), lost.get()}, 0);
  AddGeneration({added.get(), survivor.get()}, 1);  // the new process is the chief
  std::thread old([&] { RunAll({lost.get()}); });
  RunAll({survivor.get(), added.get()});
  old.join();
  ASSERT_TRUE(survivor->outcome.ok()) << survivor->outcome;
  ASSERT_TRUE(added->outcome.ok()) << added->outcome;
  EXPECT_FALSE(lost->outcome.ok());
  EXPECT_EQ(added->recorder.start.start_step, 3);
  ExpectSame(*added, *Whole());
}

// Two replicas would round the step's sums otherwise than three.
TEST(Generations, ThoseWhoAreLeftToStopMakeNoFurtherStep) {
  std::vector<Communicator*> first;
  const auto chief = MakeProcess(), survivor = MakeProcess();
  const auto lost = MakeProcess([&](Step& step) {
    if (step.number() != 4) return;
    chief->membership.RequestStop();  // the survivor has not heard of it when it forms
    first[2]->Abort(PeerLost("worker 2 is gone"));
  });
  first = AddGeneration({chief.get(), survivor.get(), lost.get()}, 0);
  AddGeneration({chief.get(), survivor.get()}, 0);
  RunAll({chief.get(), survivor.get(), lost.get()});
  for (const Process* process : {chief.get(), survivor.get()}) {
    EXPECT_EQ(ExitCodeOf(process->outcome), ExitCode::kPreempted) << process->outcome;
    EXPECT_THAT(process->membership.last_steps, ::testing::ElementsAre(0, 3));
  }
  ASSERT_FALSE(chief->kept.kept.empty());
  EXPECT_EQ(chief->kept.kept.back().state.step, 3);
}

TEST(Generations, AProcessThatIsNotTheChiefBeginsWithoutAState) {
  TrainerOptions of_worker;
  of_worker.begins_run = false;
  const auto chief = MakeProcess(), worker = MakeProcess({}, std::move(of_worker));
  AddGeneration({chief.get(), worker.get()}, 0);
  RunAll({chief.get(), worker.get()});
  ASSERT_TRUE(chief->outcome.ok() && worker->outcome.ok()) << chief->outcome << worker->outcome;
  EXPECT_THAT(chief->membership.last_steps, ::testing::ElementsAre(0));
  EXPECT_THAT(worker->membership.last_steps, ::testing::ElementsAre(-1));
  ExpectSame(*chief, *Whole());
}

TEST(Generations, WhereNobodyHasAStateTheChiefsProcessEndsAndTheOthersWait) {
  TrainerOptions of_chief, of_worker;
  std::string why;
  of_chief.on_state_lost = [&](const std::string& reason) { why = reason; };
  of_worker.begins_run = false;
  const auto chief = MakeProcess({}, std::move(of_chief));
  const auto worker = MakeProcess({}, std::move(of_worker));
  AddGeneration({chief.get(), worker.get()}, 0);
  for (Process* process : {chief.get(), worker.get()})
    process->membership.generations.front().owner_step = -1;
  RunAll({chief.get(), worker.get()});
  EXPECT_THAT(why, ::testing::HasSubstr("no process has a whole state of the run"));
  EXPECT_EQ(chief->kept.drains, 1) << "a save under way is published before";
  EXPECT_EQ(ExitCodeOf(worker->outcome), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(worker->outcome)), ::testing::HasSubstr("waiting for a chief"));
}

TEST(Generations, ASaveThatALostPeerCutShortIsMadeInTheNextOne) {
  std::promise<void> committed;
  const auto tell = [&](Step& step) {
    if (step.number() == 3) step.on_commit([&] { committed.set_value(); });
  };
  const auto chief = MakeProcess(), worker = MakeProcess(tell);
  const auto first = AddGeneration({chief.get(), worker.get()}, 0);
  AddGeneration({chief.get(), worker.get()}, 0);
  int64_t asked = 0;
  chief->kept.wanted = [&](const SaveMoment& moment) {
    if (moment.step != 3) return false;
    if (++asked > 1) return true;
    // The step is committed everywhere; what the others hold of their own is not gathered yet.
    EXPECT_EQ(committed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    first[1]->Abort(PeerLost("worker 1 is gone"));
    return true;
  };
  RunAll({chief.get(), worker.get()});
  ASSERT_TRUE(chief->outcome.ok()) << chief->outcome;
  ASSERT_EQ(chief->kept.kept.size(), 2u) << "that of step 3 and the last one";
  EXPECT_EQ(chief->kept.kept[0].state.step, 3);
  const at::Tensor seen = ViewOf(*chief->kept.kept[0].replica_buffers.Find("seen"));
  EXPECT_TRUE(at::equal(seen, at::full({2}, 3, at::kLong)));
  EXPECT_EQ(asked, 2);
  ExpectSame(*chief, *Whole());
}

}  // namespace
}  // namespace muster
