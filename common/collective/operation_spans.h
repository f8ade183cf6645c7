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
  // Announces the span of an operation that begins. Returns the number to pass to Add as `opened`,
  // or 0 if the recorder is not recording.
  uint64_t Open(const OperationLabel& label, const CollectiveCall& call,
                MonotonicTime begin) const {
    if (recorder_ == nullptr || !recorder_->recording()) return 0;
    return recorder_->Open(EventOf(label, call, begin));
  }
  // Adds the span of an operation that has just ended, if the recorder is recording.
  void Add(const OperationLabel& label, const CollectiveCall& call, MonotonicTime begin,
           uint64_t opened) const {
    if (recorder_ == nullptr || !recorder_->recording()) return;
    SpanEvent event = EventOf(label, call, begin);
    event.end = Clock::now();
    recorder_->Add(event, opened);
  }

 private:
  SpanEvent EventOf(const OperationLabel& label, const CollectiveCall& call,
                    MonotonicTime begin) const {
    return {.name = label.name != nullptr ? label.name : call.operation,
            .lane = lane_,
            .begin = begin,
            .bytes = call.bytes,
            .sequence = call.sequence,
            .index = label.index};
  }

  const std::shared_ptr<SpanRecorder> recorder_ = SpanThread::Recorder();  // May be null.
  int lane_ = 0;
};

}  // namespace muster::collective
