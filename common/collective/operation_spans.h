// Records the operations of a communicator as spans for `muster trace`. A span is a named interval
// of time, and a lane is a row of spans in the trace (common/flight/spans.h). Internal.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/flight/flight_recorder.h"
#include "common/flight/spans.h"

namespace muster::collective {

// A copy of the SpanLabel of the thread that issues an operation. Another thread may run the
// operation.
struct OperationLabel {
  const char* name = SpanLabel::Name();  // Null: there is no label.
  int32_t index = SpanLabel::Index();
};

// Adds spans to the recorder of the thread that made the communicator, in a lane for `rank`.
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
