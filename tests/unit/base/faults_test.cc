#include "common/base/faults/faults.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <stdexcept>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kTasks = {"chief:0", "worker:0", "worker:1", "evaluator:0"};

std::string Refusal(const std::string& text) {
  const auto faults = ParseFaults({text});
  EXPECT_FALSE(faults.ok()) << text;
  if (faults.ok()) return "";
  EXPECT_EQ(ExitCodeOf(faults.status()), ExitCode::kConfiguration) << text;
  EXPECT_THAT(std::string(Message(faults.status())), testing::StartsWith("--fault " + text + ": "));
  return std::string(Message(faults.status()));
}

Fault One(const std::string& text) {
  const auto faults = ParseFaults({text});
  EXPECT_TRUE(faults.ok()) << faults.status();
  return faults.ok() ? faults->front() : Fault();
}

TEST(ParseFaults, ReadsEveryKind) {
  Fault fault = One("kill@worker:1:step=30");
  EXPECT_EQ(fault.kind, FaultKind::kKill);
  EXPECT_EQ(fault.task, "worker:1");
  EXPECT_EQ(fault.step, 30);
  EXPECT_FALSE(fault.phase);
  EXPECT_EQ(fault.number, 1);

  fault = One("stop@master:0:phase=save:nth=3:for=1.5s");
  EXPECT_EQ(fault.kind, FaultKind::kStop);
  EXPECT_EQ(fault.task, "chief:0");
  EXPECT_EQ(fault.phase, Phase::kSave);
  EXPECT_EQ(fault.nth, 3);
  EXPECT_EQ(fault.duration, std::chrono::milliseconds(1500));

  EXPECT_EQ(One("delay=200ms@*:step=5").duration, std::chrono::milliseconds(200));
  EXPECT_EQ(One("drop@worker:*:step=5").link, FaultLink::kData);
  EXPECT_EQ(One("drop=control@worker:0:step=5").link, FaultLink::kControl);
  EXPECT_EQ(One("freeze=2s@worker:0:step=5:link=all").link, FaultLink::kAll);
  EXPECT_EQ(One("exception@worker:0:step=4").kind, FaultKind::kException);
  EXPECT_EQ(One("disk-full@chief:0:step=20:for=3s").duration, std::chrono::seconds(3));
  fault = One("slow@worker:1");
  EXPECT_EQ(fault.kind, FaultKind::kSlow);
  EXPECT_EQ(fault.duration, std::chrono::milliseconds(200));
  EXPECT_EQ(One("slow=1.5s@worker:1:step=3").duration, std::chrono::milliseconds(1500));
  EXPECT_EQ(One("slow@worker:1").Describe(), "slow, each step by 0.2 s");
  fault = One("random=10@*:seed=7:steps=5-100");
  EXPECT_EQ(fault.count, 10);
  EXPECT_EQ(fault.seed, 7u);
  EXPECT_EQ(fault.step, 5);
  EXPECT_EQ(fault.last_step, 100);
}

TEST(ParseFaults, RefusesInOneSentence) {
  EXPECT_THAT(Refusal("kil@worker:1:step=3"),
              HasSubstr("there is no fault \"kil\", did you mean \"kill\"?"));
  EXPECT_THAT(Refusal("explode@worker:1:step=3"), HasSubstr("there are kill, stop, delay"));
  EXPECT_THAT(Refusal("kill"), HasSubstr("names no task"));
  EXPECT_THAT(Refusal("kill@wroker:1:step=3"), HasSubstr("did you mean \"worker\"?"));
  EXPECT_THAT(Refusal("kill@worker:step=3"), HasSubstr("does not say which worker"));
  EXPECT_THAT(Refusal("kill@worker"), HasSubstr("does not say which worker"));
  EXPECT_THAT(Refusal("kill@worker:x:step=3"), HasSubstr("the task's index is \"x\""));
  EXPECT_THAT(Refusal("kill@worker:1"), HasSubstr("does not say when"));
  EXPECT_THAT(Refusal("kill@worker:1:step=0"), HasSubstr("step is \"0\""));
  EXPECT_THAT(Refusal("kill@worker:1:step=99999999999999999999"), HasSubstr("whole number"));
  EXPECT_THAT(Refusal("kill@worker:1:step=-3"), HasSubstr("whole number"));
  EXPECT_THAT(Refusal("kill@worker:1:stpe=3"), HasSubstr("did you mean \"step\"?"));
  EXPECT_THAT(Refusal("kill@worker:1:step=3:phase=sav"), HasSubstr("did you mean \"save\"?"));
  EXPECT_THAT(Refusal("kill@worker:1:step=3:step=4"), HasSubstr("step is there twice"));
  EXPECT_THAT(Refusal("kill@worker:1:step=3:save"), HasSubstr("is no key=value"));
  EXPECT_THAT(Refusal("kill@worker:1:step=3:for=3s"), HasSubstr("no key of kill \"for\""));
  EXPECT_THAT(Refusal("kill=9@worker:1:step=3"), HasSubstr("kill takes no value"));
  EXPECT_THAT(Refusal("delay@worker:1:step=3"), HasSubstr("does not say how long"));
  EXPECT_THAT(Refusal("delay=3@worker:1:step=3"), HasSubstr("a time like 200ms"));
  EXPECT_THAT(Refusal("delay=inf s@worker:1:step=3"), HasSubstr("a time like 200ms"));
  EXPECT_THAT(Refusal("delay=1e300s@worker:1:step=3"), HasSubstr("a time like 200ms"));
  EXPECT_THAT(Refusal("delay=nans@worker:1:step=3"), HasSubstr("a time like 200ms"));
  EXPECT_THAT(Refusal("drop=dta@worker:1:step=3"), HasSubstr("did you mean \"data\"?"));
  EXPECT_THAT(Refusal("exception@worker:1:step=3:phase=save"),
              HasSubstr("does not run in phase save"));
  EXPECT_THAT(Refusal("random=10@*:seed=1"), HasSubstr("of which steps"));
  EXPECT_THAT(Refusal("random=10@*:steps=9-5"), HasSubstr("the last of steps"));
  EXPECT_THAT(Refusal(""), HasSubstr("names no task"));
  EXPECT_THAT(Refusal("@"), HasSubstr("there is no fault"));
}

std::vector<Fault> Of(const std::string& self, const std::vector<std::string>& texts,
                      const std::vector<std::string>& tasks = kTasks) {
  auto faults = ParseFaults(texts);
  EXPECT_TRUE(faults.ok()) << faults.status();
  auto mine = FaultsOf(self, *std::move(faults), tasks);
  EXPECT_TRUE(mine.ok()) << mine.status();
  return *std::move(mine);
}

std::vector<int> Numbers(const std::vector<Fault>& faults) {
  std::vector<int> numbers;
  for (const Fault& fault : faults) numbers.push_back(fault.number);
  return numbers;
}

TEST(FaultsOf, GivesEachTaskItsOwn) {
  const std::vector<std::string> all = {"kill@worker:1:step=3", "delay=1s@worker:*:step=4",
                                        "delay=1s@*:step=5", "kill@evaluator:0:phase=evaluate"};
  EXPECT_THAT(Numbers(Of("worker:1", all)), ElementsAre(1, 2, 3));
  EXPECT_THAT(Numbers(Of("worker:0", all)), ElementsAre(2, 3));
  EXPECT_THAT(Numbers(Of("chief:0", all)), ElementsAre(3));
  EXPECT_THAT(Numbers(Of("evaluator:0", all)), ElementsAre(3, 4));
  const auto absent = FaultsOf("worker:0", *ParseFaults({"kill@worker:7:step=3"}), kTasks);
  EXPECT_THAT(std::string(Message(absent.status())),
              HasSubstr("is for worker:7, which this cluster has not: it has chief:0, worker:0"));
}

std::vector<std::string> Drawn(const std::string& text, std::vector<std::string> tasks) {
  std::vector<std::string> drawn;
  for (const std::string& task : kTasks)
    for (const Fault& fault : Of(task, {text}, tasks))
      drawn.push_back(fmt::format("{} {} {} {}", fault.task, fault.Describe(), fault.step,
                                  PhaseName(*fault.phase)));
  return drawn;
}

TEST(FaultsOf, DrawsTheSameEverywhere) {
  const auto first = Drawn("random=50@*:seed=3:steps=5-100", kTasks);
  EXPECT_EQ(first.size(), 50u);
  // Neither the order nor a listed evaluator changes the faults.
  EXPECT_EQ(first, Drawn("random=50@*:seed=3:steps=5-100", {"worker:1", "chief:0", "worker:0"}));
  EXPECT_NE(first, Drawn("random=50@*:seed=4:steps=5-100", kTasks));
  for (const Fault& fault : Of("worker:1", {"random=50@worker:1:seed=3:steps=5-7"})) {
    EXPECT_GE(fault.step, 5);
    EXPECT_LE(fault.step, 7);
  }
}

// Collects in words what the faults do.
class Planned {
 public:
  explicit Planned(const std::vector<std::string>& texts, int restarts = 0)
      : faults_(Of("worker:0", texts, {"worker:0"}), restarts,
                {[this] { done.push_back("kill"); }, [this](Duration) { done.push_back("stop"); },
                 [this](Duration) { done.push_back("sleep"); }}) {
    faults_.SetLinks({[this](FaultLink) { done.push_back("drop"); },
                      [this](FaultLink, Duration) { done.push_back("freeze"); }});
  }
  // The whole of training's steps `from` to `to`.
  void Steps(int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; ++step) {
      for (Phase phase :
           {Phase::kData, Phase::kForward, Phase::kReduce, Phase::kForward, Phase::kUpdate}) {
        const size_t before = done.size();
        faults_.At(phase, step);
        if (done.size() > before) done.back() += fmt::format(" {} {}", step, PhaseName(phase));
      }
    }
  }
  std::vector<std::string> done;
  Faults faults_;
};

TEST(Faults, HappenOnceEach) {
  Planned planned({"kill@worker:0:step=3", "drop@worker:0:step=2:phase=reduce",
                   "freeze=1s@worker:0:step=4:phase=data", "stop@worker:0:step=5:nth=2",
                   "delay=1s@worker:0:step=5:phase=update"});
  planned.Steps(1, 9);
  EXPECT_THAT(planned.done, ElementsAre("drop 2 reduce", "kill 3 forward", "freeze 4 data",
                                        "stop 5 forward", "sleep 5 update"));
}

TEST(Faults, SlowDelaysEachStepOnce) {
  Planned planned({"slow@worker:0:step=3", "kill@worker:0:step=4:phase=update"});
  planned.Steps(1, 5);
  EXPECT_THAT(planned.done, ElementsAre("sleep 3 forward", "sleep 4 forward", "kill 4 update",
                                        "sleep 5 forward"));
}

TEST(Faults, SlowEndsWithTheProcess) {
  Planned planned({"slow@worker:0"}, 1);
  planned.Steps(7, 9);
  EXPECT_THAT(planned.done, IsEmpty());
}

TEST(Faults, AreDueAtTheFirstMomentFromTheirStepOn) {
  Planned planned({"kill@worker:0:step=3:phase=save", "stop@worker:0:phase=evaluate"});
  planned.Steps(1, 4);
  planned.faults_.At(Phase::kSave, 2);
  EXPECT_THAT(planned.done, IsEmpty());
  planned.faults_.At(Phase::kEvaluate, 4);
  planned.faults_.At(Phase::kSave, 4);
  planned.faults_.At(Phase::kSave, 6);
  EXPECT_THAT(planned.done, ElementsAre("stop", "kill"));
}

TEST(Faults, OfStepsThatWereMadeBeforeThisStartAreLeftOut) {
  Planned planned({"kill@worker:0:step=3", "kill@worker:0:step=8"});
  planned.Steps(5, 9);
  EXPECT_THAT(planned.done, ElementsAre("kill 8 forward"));
}

TEST(Faults, DoNotMeetTheNextLifeAgain) {
  const std::vector<std::string> texts = {"kill@worker:0:step=3", "kill@worker:0:step=8",
                                          "delay=1s@worker:0:step=5"};
  // Others hold the state: it continues with the step in which it was killed.
  Planned second(texts, 1);
  second.Steps(3, 9);
  EXPECT_THAT(second.done, ElementsAre("sleep 5 forward", "kill 8 forward"));
  // All were killed: it continues from an earlier checkpoint.
  Planned back(texts, 1);
  back.Steps(1, 9);
  EXPECT_THAT(back.done, ElementsAre("sleep 5 forward", "kill 8 forward"));
  Planned third(texts, 2);
  third.Steps(8, 20);
  EXPECT_THAT(third.done, IsEmpty());
}

TEST(Faults, AtAStartMeetTheFirstLifeOnly) {
  for (const char* phase : {"starting", "forming"}) {
    const std::vector<std::string> texts = {fmt::format("kill@worker:0:phase={}", phase),
                                            fmt::format("kill@worker:0:step=1:phase={}", phase)};
    for (int restarts : {0, 1, 2}) {
      Planned planned(texts, restarts);
      planned.faults_.At(Phase::kStarting, 0);
      planned.faults_.At(Phase::kStarting, 1);
      planned.faults_.At(Phase::kForming);
      EXPECT_EQ(planned.done.empty(), restarts > 0) << phase << " " << restarts;
    }
  }
}

TEST(Faults, OfAFormationMeetThatOfTheStepUnderWay) {
  Planned planned({"kill@worker:0:step=4:phase=forming"});
  planned.faults_.At(Phase::kStarting, 1);
  planned.faults_.At(Phase::kForming);
  planned.Steps(1, 4);
  EXPECT_THAT(planned.done, IsEmpty());
  planned.faults_.At(Phase::kStarting, 4);
  planned.faults_.At(Phase::kSave, 2);  // a save that is still in progress
  planned.faults_.At(Phase::kForming);
  EXPECT_THAT(planned.done, ElementsAre("kill"));
}

TEST(Faults, ThrowInTheProgramsPlace) {
  Planned planned({"exception@worker:0:step=2"});
  planned.Steps(1, 1);
  EXPECT_THROW(planned.Steps(2, 2), std::runtime_error);
  planned.Steps(2, 3);
}

TEST(Faults, FillTheDiskForATime) {
  Planned planned({"disk-full@worker:0:step=1:for=50ms", "disk-full@worker:0:step=3"});
  EXPECT_TRUE(planned.faults_.CheckDisk("x").ok());
  planned.Steps(1, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(planned.faults_.CheckDisk("x")));
  while (!planned.faults_.CheckDisk("x").ok()) {
  }
  planned.Steps(2, 3);
  EXPECT_TRUE(absl::IsResourceExhausted(planned.faults_.CheckDisk("x")));
}

}  // namespace
}  // namespace muster
