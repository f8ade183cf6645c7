#include "chief/leases/evaluation_pass.h"

#include <algorithm>

#include "chief/leases/held_ids.h"

namespace muster::chief {
namespace {

// Limit of a pass's batches in one part. There are fewer if workers would get few parts.
constexpr int64_t kMaxBatchesOfPart = 16;
constexpr int64_t kPartsOfWorker = 4;

}  // namespace

EvaluationPass::EvaluationPass(const Options& options)
    : options_(options),
      first_id_(kEndOfLeaseIds | static_cast<int64_t>(options.split) << 56 | options.step << 20),
      sums_(2 + options.metric_sums) {
  const int64_t batches = (options.examples + options.batch - 1) / options.batch;
  const int64_t each =
      std::clamp<int64_t>(batches / (kPartsOfWorker * options.workers), 1, kMaxBatchesOfPart);
  for (int64_t begin = 0; begin < options.examples; begin += each * options.batch)
    parts_.push_back({begin, std::min(begin + each * options.batch, options.examples)});
}

int EvaluationPass::Find(int64_t id) const {
  if (id < first_id_ || id - first_id_ >= static_cast<int64_t>(parts_.size())) return -1;
  return static_cast<int>(id - first_id_);
}

bool EvaluationPass::Holds(int worker, int64_t id) const {
  const int part = Find(id);
  return part >= 0 && parts_[part].holder == worker;
}

std::string EvaluationPass::Offer(const proto::NextRequest& request, proto::Lease* offer) {
  const int worker = request.worker().worker();
  // First offers the part from an earlier answer that did not arrive.
  int chosen = -1, held = 0;
  for (int i = 0; i < static_cast<int>(parts_.size()); ++i) {
    const Part& part = parts_[i];
    const bool own = part.holder == worker;
    if (own && HoldsId(request, first_id_ + i))
      ++held;
    else if (own) {
      chosen = i;
      break;
    } else if (chosen < 0 && part.holder < 0 && !part.done)
      chosen = i;
  }
  if (chosen < 0) return "the last parts of a pass are out";
  if (held >= kMaxHeld) return "two parts are enough";
  Part& part = parts_[chosen];
  const bool first = pull_requested_.insert(worker).second;
  offer->set_pull(part.holder == worker || first);
  part.holder = worker;
  offer->set_id(first_id_ + chosen);
  offer->set_begin(part.begin);
  offer->set_end(part.end);
  offer->mutable_evaluation()->set_split(options_.split);
  offer->set_summary(chosen == 0 && options_.summary);
  return "";
}

void EvaluationPass::Take(const proto::EvaluationDone& done) {
  const int found = Find(done.lease());
  if (found < 0 || parts_[found].done) return;
  Part& part = parts_[found];
  part.done = true;
  part.holder = -1;
  ++done_;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += done.sums(static_cast<int>(i));
  if (done.has_loss_weights()) loss_weights_ = loss_weights_.value_or(0) + done.loss_weights();
  for (const auto& [name, value] : done.values()) {
    values_[name].sum += value.sum();
    values_[name].weight += value.weight();
  }
  shown_.MergeFrom(done.shown());
  left_out_.set_examples(left_out_.examples() + done.left_out().examples());
  left_out_.mutable_names()->MergeFrom(done.left_out().names());
}

void EvaluationPass::Lose(int worker) {
  for (Part& part : parts_)
    if (part.holder == worker) part.holder = -1;
}

bool EvaluationPass::AddOutstanding(std::set<int>* workers) const {
  bool nobodys = false;
  for (const Part& part : parts_) {
    if (part.holder >= 0) workers->insert(part.holder);
    nobodys = nobodys || (part.holder < 0 && !part.done);
  }
  return nobodys;
}

EvaluationPass::Result EvaluationPass::result() const {
  return {done_,   static_cast<int64_t>(parts_.size()),
          sums_,   loss_weights_.value_or(sums_[1]),
          values_, left_out_};
}

}  // namespace muster::chief
