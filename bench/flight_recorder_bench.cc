// Measures the cost of recording an event or a span: in one thread, and in several at once.
//
//   flight_recorder_bench [threads...]      default 1 2
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "common/flight/flight_recorder.h"
#include "common/flight/spans.h"

namespace muster {
namespace {

constexpr int kRounds = 7, kEvents = 200'000;

template <typename Body>
double BestNs(int threads, const Body& body,
              const std::shared_ptr<SpanRecorder>& recorder = nullptr) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> all;
    const auto start = Clock::now();
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&] {
        const SpanThread bound(recorder, "bench");
        for (int i = 0; i < kEvents; ++i) body(i);
      });
    }
    for (std::thread& thread : all) thread.join();
    best = std::min(best, Seconds(Clock::now() - start) * 1e9 / kEvents);
  }
  return best;
}

double SpanNs(int threads, bool recording) {
  const auto recorder = std::make_shared<SpanRecorder>();
  if (recording) recorder->Start();
  return BestNs(
      threads, [](int) { const Span span("forward"); }, recorder);
}

void Report(int threads) {
  FlightRecorder recorder;
  CollectiveCall call{"all_reduce", "float32", "sum", 1000, 4000};
  const double phase = BestNs(threads, [&](int i) { recorder.EnterPhase(Phase::kReduce, i); });
  const double operation = BestNs(threads, [&](int) { recorder.Starts(call); });
  const double note = BestNs(
      threads, [&](int) { recorder.Note(FlightKind::kAborted, "a sentence of some length"); });
  const double standing = BestNs(1, [&](int i) {
    if (i % 1000 == 0) (void)recorder.CurrentPosition();
  });
  fmt::print(
      "{} thread{}: a phase {:.0f} ns, an operation {:.0f} ns, an event with text {:.0f} ns, "
      "a heartbeat's look {:.0f} ns, a span {:.1f} ns, or {:.0f} ns while a trace is recorded\n",
      threads, threads == 1 ? "" : "s", phase, operation, note, standing * 1000,
      SpanNs(threads, false), SpanNs(threads, true));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  std::vector<int> threads;
  for (int i = 1; i < argc; ++i) threads.push_back(std::atoi(argv[i]));
  if (threads.empty()) threads = {1, 2};
  for (const int count : threads) muster::Report(std::max(1, count));
}
