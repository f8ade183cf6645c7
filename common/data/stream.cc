// A dataset of unknown size that reads a stream. It keeps the examples around its readers'
// positions in memory, so that all readers together read the stream only once.
#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <list>

#include "common/base/logging.h"
#include "common/data/batches.h"
#include "muster/data.h"

namespace muster::data {
namespace {

class StreamDataset final : public Dataset {
 public:
  StreamDataset(OpenStream open, Reopen reopen) : open_(std::move(open)), reopen_(reopen) {}

  int64_t size() const override { return kUnknownSize; }

  absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                    const Context& context) const override {
    absl::MutexLock lock(&mutex_);
    longest_ = std::max(longest_, end - begin);
    MUSTER_ASSIGN_OR_RETURN(Window * window, ReadTo(begin, end, context));
    return std::clamp<int64_t>(window->end() - begin, 0, end - begin);
  }

  absl::StatusOr<Example> Get(int64_t index, const Context& context) const override {
    absl::MutexLock lock(&mutex_);
    MUSTER_ASSIGN_OR_RETURN(const Example* kept, Find(index, context));
    Example example = *kept;
    for (at::Tensor& component : example) component = component.clone();
    return example;
  }

  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    if (indices.empty())
      return ConfigurationError("A stream cannot tell what its examples look like.");
    std::vector<Example> examples;
    {
      absl::MutexLock lock(&mutex_);
      for (const int64_t index : indices) {
        MUSTER_ASSIGN_OR_RETURN(const Example* kept, Find(index, context));
        examples.push_back(*kept);
      }
    }
    return StackExamples(examples, indices);
  }

 private:
  // Holds examples [begin, end()) of a pass, and the stream at end().
  struct Window {
    Context context;
    int64_t begin = 0;
    std::deque<Example> examples;
    std::unique_ptr<Stream> stream;  // Null at the end of the stream.
    int64_t end() const { return begin + static_cast<int64_t>(examples.size()); }
  };
  // The replicas of a process read at most two passes at a time: the end of one pass and the start
  // of the next.
  static constexpr size_t kWindows = 2;
  // The largest distance between readers without reopening the stream, in multiples of the longest
  // range of Available(). It covers the current batch and the batches that a pipeline loads ahead.
  static constexpr int64_t kKept = 5;

  absl::StatusOr<std::unique_ptr<Stream>> Open(const Context& context, int64_t first) const {
    absl::StatusOr<std::unique_ptr<Stream>> stream;
    try {
      stream = open_(context, first);
    } catch (...) {
      return CaughtException(
          fmt::format("Opening the stream, at pass {}, example {},", context.epoch, first));
    }
    if (stream.ok() && *stream == nullptr) return ProgramError("A stream was opened and is null.");
    return stream;
  }

  // Opens a window that begins at `index`.
  absl::StatusOr<Window> Begin(int64_t index, const Context& context) const {
    Window window;
    window.context = context;
    if (index > 0 && reopen_ == Reopen::kNever) {
      return ConfigurationError(
          fmt::format("The stream cannot be opened at example {} of pass {}: its Reopen is "
                      "kNever. Start a new run with restore: never, or open it with another "
                      "Reopen.",
                      index, context.epoch));
    }
    if (index > 0 && reopen_ == Reopen::kAsItComes)
      LogWarning("the stream is assumed to continue at example {} of pass {}", index,
                 context.epoch);
    const bool at_index = reopen_ == Reopen::kAtExample || reopen_ == Reopen::kAsItComes;
    window.begin = at_index ? index : 0;
    MUSTER_ASSIGN_OR_RETURN(window.stream,
                            Open(context, reopen_ == Reopen::kAtExample ? index : 0));
    return window;
  }

  // Appends one example to the window. Returns false at the end of the stream.
  absl::StatusOr<bool> ReadOne(Window* window) const {
    if (window->stream == nullptr) return false;
    absl::StatusOr<Example> example;
    try {
      example = window->stream->Next();
    } catch (...) {
      return CaughtException(
          fmt::format("The stream, at pass {}, example {},", window->context.epoch, window->end()));
    }
    if (absl::IsOutOfRange(example.status())) {
      window->stream.reset();
      return false;
    }
    MUSTER_RETURN_IF_ERROR(example.status());
    window->examples.push_back(*std::move(example));
    return true;
  }

  // Returns a window with all existing examples in [begin, end).
  absl::StatusOr<Window*> ReadTo(int64_t begin, int64_t end, const Context& context) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto window = std::find_if(windows_.begin(), windows_.end(), [&](const Window& w) {
      return w.context.epoch == context.epoch && w.begin <= begin;
    });
    if (window == windows_.end()) {
      MUSTER_ASSIGN_OR_RETURN(Window opened, Begin(begin, context));
      windows_.push_front(std::move(opened));
      if (windows_.size() > kWindows) windows_.pop_back();
    } else {
      windows_.splice(windows_.begin(), windows_, window);
    }
    Window& first = windows_.front();
    while (first.end() < end) {
      MUSTER_ASSIGN_OR_RETURN(const bool more, ReadOne(&first));
      if (!more) break;
      while (first.begin < std::min(begin, first.end()) - kKept * longest_) {
        first.examples.pop_front();
        ++first.begin;
      }
    }
    return &first;
  }

  // Returns an example, which is valid as long as the caller holds mutex_.
  absl::StatusOr<const Example*> Find(int64_t index, const Context& context) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    MUSTER_ASSIGN_OR_RETURN(Window * window, ReadTo(index, index + 1, context));
    if (index >= window->end()) return absl::OutOfRangeError("the stream is at its end");
    return &window->examples[static_cast<size_t>(index - window->begin)];
  }

  const OpenStream open_;
  const Reopen reopen_;
  mutable absl::Mutex mutex_;
  // The most recently used window is first.
  mutable std::list<Window> windows_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t longest_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace

DatasetPtr FromStream(OpenStream open, Reopen reopen) {
  return std::make_shared<StreamDataset>(std::move(open), reopen);
}

}  // namespace muster::data
