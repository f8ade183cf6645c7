// The spans of a communicator's operations, for `muster trace`. Internal.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/flight/flight_recorder.h"
#include "common/flight/spans.h"

namespace muster::collective {

// The SpanLabel of the thread that issues an operation, which another thread may run.
struct OperationLabel {
  const char* name = SpanLabel::Name();  // Null: none.
  int32_t index = SpanLabel::Index();
};

// Adds spans to a lane of the recorder of the thread that made the communicator.
class OperationSpans {
 public:
  explicit OperationSpans(int rank) {
    if (recorder_ != nullptr)
      lane_ = recorder_->Lane(fmt::format("communication, replica {}", rank));
  }
  // Adds the span of an operation that has just ended, if the recorder is recording.
  void Add(const OperationLabel& label, const CollectiveCall& call, MonotonicTime begin) const {
    if (recorder_ == nullptr || !recorder_->recording()) return;
    recorder_->Add({.name = label.name != nullptr ? label.name : call.operation,
                    .lane = lane_,
                    .begin = begin,
                    .end = Clock::now(),
                    .bytes = call.bytes,
                    .sequence = call.sequence,
                    .index = label.index});
  }

 private:
  const std::shared_ptr<SpanRecorder> recorder_ = SpanThread::Recorder();  // May be null.
  int lane_ = 0;
};

}  // namespace muster::collective
