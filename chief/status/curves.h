// Curves keep the loss, the rate and the step time of a run as a bounded number of points. If the
// limit is reached, pairs of neighbouring points are merged, and each later point covers twice as
// many steps. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::chief {

struct CurvePoint {
  int64_t step = 0;  // The last step of the point.
  double loss = 0;   // The mean of the steps' losses.
  double examples_per_second = 0;
  double step_seconds = 0;  // The mean time of a step.
};

// A reader's position.
struct CurveCursor {
  uint64_t version = 0;
  size_t count = 0;
};

class Curves {
 public:
  // REQUIRES: `most` is even and positive.
  explicit Curves(size_t most = 600) : most_(most) {}

  // Adds a step. `seconds` is the time since the previous step.
  void Add(int64_t step, double loss, int64_t examples, double seconds);
  // Removes the points after `step`. Called if training resumes from the state after `step`.
  void Rewind(int64_t step);

  struct News {
    bool replaces = false;  // The points replace all earlier ones.
    std::vector<CurvePoint> points;
  };
  // Returns the complete points after `cursor`, and advances `cursor`.
  News Since(CurveCursor* cursor) const;
  int64_t steps_per_point() const { return stride_; }

 private:
  struct Sum {
    int64_t step = 0, steps = 0, examples = 0;
    double loss = 0, seconds = 0;
  };
  static CurvePoint PointOf(const Sum& sum);
  void Halve();

  size_t most_;
  int64_t stride_ = 1;
  uint64_t version_ = 1;  // Incremented when earlier points change.
  std::vector<Sum> sums_;
  Sum open_;
};

}  // namespace muster::chief
