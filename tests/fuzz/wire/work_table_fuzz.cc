// Any sequence of what workers say of their leases.
#include "chief/leases/work_table.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::chief;
  using namespace muster::chief;
  fuzz::Bytes bytes(data, size);
  WorkTable::Options options;
  options.leases = {.examples = 100, .batch = 10, .epochs = 2};
  options.workers = 3;
  options.metric_sums = 1;
  if ((bytes.Take<uint8_t>() & 1) != 0) options.max_staleness = 2;
  WorkTable table(options, checkpoint::TrainingState{.epoch_metric_sums = {0}});
  for (int worker = 0; worker < options.workers; ++worker)
    table.SetWorker(worker, 100 + worker, false);
  int64_t before = 0;
  while (!bytes.done()) {
    const auto action = bytes.Take<uint8_t>();
    const std::string_view piece = bytes.Piece();
    proto::NextRequest request;
    if (!request.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) continue;
    // The session identifies the worker, not the message.
    const int worker = action % options.workers;
    request.mutable_worker()->set_worker(worker);
    if (action >= 250) table.LoseWorker(worker);
    if (action >= 252) table.SetWorker(worker, 200 + action, false);
    if (!table.Take(request).ok()) continue;
    proto::NextReply reply;
    (void)table.Answer(request, "", &reply);
    fuzz::Require(table.steps() >= before, "steps are not undone");
    before = table.steps();
    for (const CompletedStep& step : table.TakeCompleted())
      fuzz::Require(step.step <= before, "a step completes once");
  }
  (void)WorkTable::FromRecord(options, table.ToRecord());
  return 0;
}
