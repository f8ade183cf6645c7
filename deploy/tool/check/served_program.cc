#include "deploy/tool/check/served_program.h"

#include <utility>

#include "common/train/loop/leased_loop.h"

namespace muster {
namespace {

// A LeasedLoop on the synchronous loop of a single replica.
class TrialLoop final : public LeasedLoop {
 public:
  explicit TrialLoop(Loop* loop) : loop_(*loop) {}

  void Fit() override {
    loop_.fit();
    ended_ = true;
  }
  bool Next(data::Batch* batch, int64_t steps) override {
    CheckSteps(steps);
    ended_ = !loop_.next(batch);
    return !ended_;
  }
  StepOutcome RunStep(const LoopBody& body) override { return loop_.step(body); }
  Nested Call(const std::function<Nested()>& function) override {
    return loop_.run(function).local();
  }
  ReplicaContext context() const override { return {0, 1, loop_.device()}; }
  int64_t steps_left() const override { return loop_.steps_left(); }
  int64_t steps() const override { return loop_.steps(); }
  int64_t epoch() const override { return loop_.epoch(); }
  bool epoch_begins() const override { return loop_.epoch_begins(); }

  void CheckEnded() const {
    if (!ended_) throw StatusError(ReturnedEarly());
  }

 private:
  Loop& loop_;
  bool ended_ = false;
};

class ServedProgram final : public Program {
 public:
  explicit ServedProgram(std::unique_ptr<Program> program) : program_(std::move(program)) {}
  void build(Builder& builder) override { program_->build(builder); }
  void train_step(Step& step, const data::Batch& batch) override {
    program_->train_step(step, batch);
  }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    program_->eval_step(evaluation, batch);
  }
  void run(Loop& loop) override {
    TrialLoop tried(&loop);
    Loop own(&tried);
    program_->run(own);
    tried.CheckEnded();
  }
  void prefetch(Prefetch& rows, const data::Batch& batch) const override {
    program_->prefetch(rows, batch);
  }

 private:
  const std::unique_ptr<Program> program_;
};

}  // namespace

ProgramFactory ForServers(ProgramFactory program) {
  return [program = std::move(program)] { return std::make_unique<ServedProgram>(program()); };
}

}  // namespace muster
