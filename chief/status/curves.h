// Curves keeps three curves of a run: the loss, the examples per second and the time of a step.
// It keeps at most a fixed number of points. When this number is exceeded, Curves merges each
// pair of neighbouring points. Each point then covers twice as many steps as before. Not
// thread-safe.
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

// The position of a reader that has received the first `count` points. `version` is the value of
// Curves::version_ at that time.
struct CurveCursor {
  uint64_t version = 0;
  size_t count = 0;
};

class Curves {
 public:
  // `most` is the limit for the number of points. REQUIRES: `most` is even and positive.
  explicit Curves(size_t most = 600) : most_(most) {}

  // Adds a step with its loss and its number of examples. `seconds` is the time since the previous
  // step.
  void Add(int64_t step, double loss, int64_t examples, double seconds);
  // Removes the points that cover a step after `step`, and the last point if it does not cover all
  // its steps yet. Called if training resumes from the state after `step`.
  void Rewind(int64_t step);

  struct News {
    bool replaces = false;  // True if the reader must discard the points that it already has.
    std::vector<CurvePoint> points;
  };
  // Returns the points that the reader at `cursor` has not received, and advances `cursor`. Omits
  // the last point if it does not cover all its steps yet.
  News Since(CurveCursor* cursor) const;

 private:
  // A point, as sums over its steps. `step` is the last step, `steps` the number of steps.
  struct Sum {
    int64_t step = 0, steps = 0, examples = 0;
    double loss = 0, seconds = 0;
  };
  static CurvePoint PointOf(const Sum& sum);
  void Halve();

  size_t most_;
  int64_t stride_ = 1;    // The number of steps that a point covers.
  uint64_t version_ = 1;  // Incremented when existing points change.
  std::vector<Sum> sums_;
  Sum open_;  // The point that does not cover all its steps yet.
};

}  // namespace muster::chief
