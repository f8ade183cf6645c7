// The class that MUSTER_PROGRAM wants, around what examples/programs/builtin.h makes.
#include <builtin.h>

namespace {

class Linear : public muster::Program {
 public:
  void build(muster::Builder& builder) override { linear_->build(builder); }
  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    linear_->train_step(step, batch);
  }
  void eval_step(muster::Evaluation& evaluation, const muster::data::Batch& batch) override {
    linear_->eval_step(evaluation, batch);
  }

 private:
  const std::unique_ptr<muster::Program> linear_ = muster::MakeLinear();
};

}  // namespace

MUSTER_PROGRAM(Linear)
