#include "chief/status/curves.h"

#include <algorithm>

namespace muster::chief {

void Curves::Add(int64_t step, double loss, int64_t examples, double seconds) {
  open_.step = step;
  ++open_.steps;
  open_.examples += examples;
  open_.loss += loss;
  open_.seconds += seconds;
  if (open_.steps < stride_) return;
  sums_.push_back(open_);
  open_ = Sum();
  if (sums_.size() > most_) Halve();
}

void Curves::Halve() {
  size_t kept = 0;
  for (size_t i = 0; i + 1 < sums_.size(); i += 2) {
    Sum sum = sums_[i + 1];
    sum.steps += sums_[i].steps;
    sum.examples += sums_[i].examples;
    sum.loss += sums_[i].loss;
    sum.seconds += sums_[i].seconds;
    sums_[kept++] = sum;
  }
  // If the number of points is odd, the last one becomes the start of the next point.
  open_ = sums_.size() % 2 == 1 ? sums_.back() : Sum();
  sums_.resize(kept);
  stride_ *= 2;
  ++version_;
}

void Curves::Rewind(int64_t step) {
  open_ = Sum();
  const auto after =
      std::find_if(sums_.begin(), sums_.end(), [step](const Sum& sum) { return sum.step > step; });
  if (after == sums_.end()) return;
  sums_.erase(after, sums_.end());
  ++version_;
}

CurvePoint Curves::PointOf(const Sum& sum) {
  const auto steps = static_cast<double>(sum.steps);
  CurvePoint point;
  point.step = sum.step;
  point.loss = sum.loss / steps;
  point.step_seconds = sum.seconds / steps;
  if (sum.seconds > 0) point.examples_per_second = static_cast<double>(sum.examples) / sum.seconds;
  return point;
}

Curves::News Curves::Since(CurveCursor* cursor) const {
  News news;
  news.replaces = cursor->version != version_;
  for (size_t i = news.replaces ? 0 : cursor->count; i < sums_.size(); ++i)
    news.points.push_back(PointOf(sums_[i]));
  *cursor = {version_, sums_.size()};
  return news;
}

}  // namespace muster::chief
