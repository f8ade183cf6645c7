#include "chief/shard_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "common/base/logging.h"
#include "common/push_pull/packed_rows.h"
#include "common/train/callbacks/callback_host.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/evaluation.h"
#include "common/train/integer_buffers.h"
#include "common/train/loop.h"
#include "common/train/model_file.h"
#include "common/train/parameter_groups.h"
#include "common/train/predictor.h"
#include "common/train/replica.h"
#include "common/train/snapshot.h"
#include "common/train/summary_data.h"
#include "common/train/variables.h"

namespace muster {
namespace {

using Spans = std::vector<std::span<float>>;

constexpr size_t kMostRowBytes = 8 << 20;  // of a message
constexpr const char* kStep = "step";      // the slot that is one number

// The pieces of elements [begin, begin + elements) of what the spans cover, one after the other:
// copy(memory, elements before it, elements in it).
template <typename Copy>
void Walk(const Spans& spans, int64_t begin, int64_t elements, const Copy& copy) {
  int64_t at = 0, done = 0;
  for (const std::span<float>& span : spans) {
    const auto size = static_cast<int64_t>(span.size());
    const int64_t from = std::max(begin + done - at, int64_t{0});
    const int64_t count = std::min(size - from, elements - done);
    if (count > 0) {
      copy(span.data() + from, done, count);
      done += count;
    }
    at += size;
    if (done == elements) return;
  }
}

std::string BytesOf(std::span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size_bytes()};
}

std::string Bytes(const Spans& spans, const Chunk& chunk) {
  std::string bytes(chunk.elements() * sizeof(float), '\0');
  Walk(spans, chunk.begin, chunk.elements(), [&](const float* from, int64_t at, int64_t count) {
    std::memcpy(bytes.data() + at * sizeof(float), from, count * sizeof(float));
  });
  return bytes;
}

absl::Status Put(const std::string& bytes, const Spans& spans, const Chunk& chunk,
                 const std::string& what) {
  if (bytes.size() != chunk.elements() * sizeof(float))
    return DataError(fmt::format("{} has {} bytes, not {}", what, bytes.size(),
                                 chunk.elements() * sizeof(float)));
  Walk(spans, chunk.begin, chunk.elements(), [&](float* to, int64_t at, int64_t count) {
    std::memcpy(to, bytes.data() + at * sizeof(float), count * sizeof(float));
  });
  return absl::OkStatus();
}

class ReplicaState final : public ShardState {
 public:
  ReplicaState(const Job& job, Replica* replica, ServedVariables served)
      : job_(job), replica_(replica), served_(std::move(served)) {
    for (size_t v = 0; v < served_.specs.size(); ++v) places_.push_back(PlaceOf(v));
    while (first_table_ < static_cast<int>(served_.specs.size()) &&
           !served_.specs[first_table_].table)
      ++first_table_;
  }

  const std::vector<VariableSpec>& variables() const override { return served_.specs; }
  std::vector<std::string> optimizers() const override {
    std::vector<std::string> all;
    for (const Json& optimizer : served_.optimizers) all.push_back(Dump(optimizer));
    return all;
  }
  size_t metric_sums() const override {
    return InitialLoopState(job_, *replica_).epoch_metric_sums.size();
  }
  int64_t EpochExamples(int64_t train_examples, int64_t global_batch_size) const override {
    return TrainSampler(job_, *replica_, train_examples, global_batch_size).examples_per_epoch();
  }
  int64_t TotalSteps(int64_t steps_per_epoch) const override {
    return muster::TotalSteps(job_, steps_per_epoch);
  }

  absl::StatusOr<checkpoint::TrainingState> Restore(const checkpoint::Snapshot& snapshot) override {
    LoopState state;
    MUSTER_RETURN_IF_ERROR(RestoreReplica(snapshot, job_, replica_, &state));
    checkpoint::TrainingState restored = snapshot.state;
    restored.epoch_metric_sums = state.epoch_metric_sums;
    if (restored.extras.callbacks) kept_steps_ = restored.extras.callbacks->kept;
    restored_step_ = restored.step;
    return restored;
  }
  ShardContents Encode(const Layout& layout, int64_t steps) const override;
  absl::Status Decode(const Layout& layout, const ShardContents& contents) override;
  absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) override;

  IntegerBuffers Integers() const override { return IntegerBuffersOf(*replica_); }
  absl::Status SetIntegers(const IntegerBuffers& values) override {
    return muster::SetIntegers(values, replica_);
  }
  std::map<std::string, double> Metrics(const std::vector<double>& sums) const override {
    return MetricResults(*replica_, sums.data());
  }
  std::vector<ImageReport> MetricImages(const std::vector<double>& sums) const override {
    return muster::MetricImages(*replica_, sums.data());
  }
  void Describe(StartReport* report) const override;
  bool has_callbacks() const override { return !replica_->callbacks().callbacks.empty(); }
  absl::Status BeginCallbacks(const CallbackParts& parts, bool begun,
                              checkpoint::CallbackRecord* record) override;
  absl::Status Fire(Hook hook, CallbackMoment moment) override {
    fired_step_ = moment.step;
    hook_ = hook;
    return CatchProgramErrors("a callback", [&] { host_->Fire(hook, std::move(moment)); });
  }
  absl::StatusOr<std::optional<CallbackDecision>> Decide() override;
  void Adopt(const checkpoint::CallbackRecord& record) override { host_->Adopt(record); }
  double LearningRate(const checkpoint::CallbackRecord& record, int64_t steps) const override {
    if (replica_->optimizers().empty()) return 0;
    const NamedOptimizer& first = replica_->optimizers()[0];
    const auto set = record.rates.find(first.name);
    return set != record.rates.end() ? set->second
                                     : first.schedule->At(std::max<int64_t>(0, steps));
  }
  void PutBackWeights(const std::string& callback) override {
    if (replica_->kept().Has(callback)) replica_->kept().PutBack(callback);
  }
  std::vector<HistogramReport> Parameters() const override {
    std::vector<HistogramReport> all;
    for (const auto& [name, parameter] : NamedParameters(*replica_))
      all.push_back(MakeHistogram("parameters/" + name, parameter));
    return all;
  }

 private:
  // Where a variable's slots are: (optimizer, parameter); none of the rest.
  using Place = std::optional<std::pair<size_t, size_t>>;
  Place PlaceOf(size_t variable) const;
  // The program's optimizer that a served one is, or a group of; null: a table's, or the rest.
  const Optimizer* RuleOf(int served) const {
    const int owner = served_.owners[served].optimizer;
    return owner < 0 ? nullptr : replica_->optimizers()[owner].rule.get();
  }
  // The replica's table that variable `variable` is.
  int TableOf(int variable) const { return variable - first_table_; }
  void EncodeTables(const Layout& layout, ShardContents* contents) const;
  absl::Status DecodeRows(const Chunk& chunk, const proto::ChunkContent& content,
                          const std::string& what);
  std::vector<std::string> ShapedSlots(int served) const;
  size_t MostSlots() const;
  // By slot, then by shard: the memory of the slot's tensors in the place of the parameters'.
  std::vector<std::vector<Spans>> SlotSpans(const Layout& layout) const;
  // The number of the variable's updates, where its optimizer keeps it; else undefined.
  at::Tensor StepOf(size_t variable) const;
  int64_t UpdatesOf(const Layout& layout, int shard, const Chunk& chunk, int64_t steps) const;
  // For each variable that has elements in the chunk: visit(variable).
  template <typename Visit>
  void ForEachVariable(const Layout& layout, int shard, const Chunk& chunk,
                       const Visit& visit) const {
    for (const VariablePart& part : layout.parts)
      if (part.server == shard && part.offset < chunk.end &&
          part.offset + part.elements() > chunk.begin)
        visit(static_cast<size_t>(part.variable));
  }

  const Job job_;
  Replica* const replica_;
  const ServedVariables served_;
  std::vector<Place> places_;
  int first_table_ = 0;  // of the variables
  SnapshotTaker taker_;
  std::unique_ptr<CallbackHost> host_;
  Hook hook_ = Hook::kTrainBegin;  // that runs, or ran last
  // Of the weights that the replica keeps for callbacks; the step of its own, where it was
  // restored.
  std::map<std::string, int64_t> kept_steps_;
  int64_t restored_step_ = -1;
  int64_t fired_step_ = 0;  // of the hook that runs
};

absl::Status ReplicaState::BeginCallbacks(const CallbackParts& parts, bool begun,
                                          checkpoint::CallbackRecord* record) {
  const auto& callbacks = replica_->callbacks().callbacks;
  const auto gone = [&](const auto& item) {
    return std::none_of(callbacks.begin(), callbacks.end(),
                        [&](const NamedCallback& one) { return one.name == item.first; });
  };
  std::erase_if(record->states, gone);
  std::erase_if(record->notes, gone);
  std::erase_if(record->kept, gone);
  // A chief before this one may have kept others, and not have saved since.
  std::set<std::string> kept;
  for (auto it = record->kept.begin(); it != record->kept.end();) {
    const auto& [name, step] = *it;
    const auto known = kept_steps_.find(name);
    bool has = replica_->kept().Has(name) && known != kept_steps_.end() && known->second == step;
    if (!has && (step == restored_step_ || step == parts.weights_step)) {
      replica_->kept().Keep(name);
      kept_steps_[name] = step;
      has = true;
    }
    if (has) {
      kept.insert(name);
      ++it;
      continue;
    }
    LogWarning("the weights after step {}, which callback \"{}\" remembers, were lost with a chief",
               step, name);
    it = record->kept.erase(it);
  }
  replica_->kept().Only(kept);
  CallbackHostOptions options;
  options.callbacks = callbacks;
  // As workers have them.
  const ScheduleContext schedule = {parts.steps_per_epoch, TotalSteps(parts.steps_per_epoch),
                                    parts.workers};
  MUSTER_RETURN_IF_ERROR(replica_->Attach(
      std::vector<std::unique_ptr<GradientSink>>(replica_->optimizers().size()), schedule));
  for (const NamedOptimizer& optimizer : replica_->optimizers())
    options.rates.push_back({optimizer.name, optimizer.learning_rate});
  for (const std::string& line : DropReplacedRates(options.rates, record)) LogInfo("{}", line);
  options.observers = parts.observers;
  if (parts.checkpoints != nullptr) {
    options.model_dir = job_.model_dir;
    options.may_write = [sink = parts.checkpoints] { return sink->CheckOwner(); };
  }
  options.num_replicas = parts.workers;
  options.rate = [this, steps = parts.steps](const std::string& name) {
    for (const NamedOptimizer& optimizer : replica_->optimizers())
      if (optimizer.name == name) return optimizer.schedule->At(steps());
    return 0.0;
  };
  options.save_model = [this](const std::string& path, bool with_optimizer) -> absl::Status {
    if (hook_ != Hook::kEpochEnd && hook_ != Hook::kTrainEnd)
      return ProgramError(
          "a callback calls save_model in the middle of an epoch, where with parameter servers "
          "nobody holds all weights of one step: call it in epoch_end or train_end");
    MUSTER_ASSIGN_OR_RETURN(checkpoint::Snapshot snapshot,
                            taker_.Take(*replica_, InitialLoopState(job_, *replica_)));
    return WriteModelFile(checkpoint::PosixFileSystem(), path, std::move(snapshot), job_,
                          with_optimizer);
  };
  options.predict = [this, has_weights = parts.has_weights](
                        const data::Batch& batch,
                        const std::vector<std::string>& columns) -> absl::StatusOr<at::Tensor> {
    if (!has_weights(fired_step_))
      return ConfigurationError(
          "with parameter servers the chief has their weights at the ends of epochs alone: predict "
          "in epoch_end or train_end");
    return PredictForHook(replica_, job_.precision, batch, columns);
  };
  host_ = std::make_unique<CallbackHost>(std::move(options));
  return CatchProgramErrors("a callback", [&] { host_->Begin(*record, begun); });
}

absl::StatusOr<std::optional<CallbackDecision>> ReplicaState::Decide() {
  CallbackDecision decision;
  bool decided = false;
  MUSTER_RETURN_IF_ERROR(
      CatchProgramErrors("a callback", [&] { decided = host_->TakeDecision(&decision); }));
  if (!decided) return std::optional<CallbackDecision>();
  for (const auto& [what, callback] : decision.weights) {
    if (what == "keep") {
      replica_->kept().Keep(callback);
      kept_steps_[callback] = decision.record.kept.at(callback);
    } else {
      replica_->kept().PutBack(callback);
    }
  }
  return decision;
}

ReplicaState::Place ReplicaState::PlaceOf(size_t variable) const {
  const VariableSpec& spec = served_.specs[variable];
  const int owner = served_.owners[spec.optimizer].optimizer;
  if (owner < 0) return std::nullopt;
  const auto& names = replica_->optimizers()[owner].parameter_names;
  const auto found = std::find(names.begin(), names.end(), spec.name);
  return std::pair{static_cast<size_t>(owner), static_cast<size_t>(found - names.begin())};
}

std::vector<std::string> ReplicaState::ShapedSlots(int served) const {
  const Optimizer* const rule = RuleOf(served);
  if (rule == nullptr) return {};
  std::vector<std::string> names = rule->slot_names();
  std::erase(names, std::string(kStep));
  return names;
}

size_t ReplicaState::MostSlots() const {
  size_t most = 0;
  for (size_t o = 0; o < served_.optimizers.size(); ++o)
    most = std::max(most, ShapedSlots(static_cast<int>(o)).size());
  return most;
}

std::vector<std::vector<Spans>> ReplicaState::SlotSpans(const Layout& layout) const {
  std::vector<std::vector<Spans>> all;
  for (size_t slot = 0; slot < MostSlots(); ++slot) {
    std::vector<at::Tensor> tensors = served_.tensors;  // of those without: never looked at
    for (size_t v = 0; v < tensors.size(); ++v) {
      if (!places_[v]) continue;
      const auto& [optimizer, parameter] = *places_[v];
      const std::vector<std::string> shaped = ShapedSlots(served_.specs[v].optimizer);
      if (slot >= shaped.size()) continue;
      const Optimizer& rule = *replica_->optimizers()[optimizer].rule;
      const auto& names = rule.slot_names();
      const auto index = std::find(names.begin(), names.end(), shaped[slot]) - names.begin();
      tensors[v] = rule.slot(static_cast<int>(index))[parameter].detach();
    }
    all.push_back(ShardSpans(layout, served_.specs, tensors));
  }
  return all;
}

at::Tensor ReplicaState::StepOf(size_t variable) const {
  if (!places_[variable]) return {};
  const auto& [optimizer, parameter] = *places_[variable];
  const Optimizer& rule = *replica_->optimizers()[optimizer].rule;
  const auto& names = rule.slot_names();
  const auto found = std::find(names.begin(), names.end(), kStep);
  if (found == names.end()) return {};
  return rule.slot(static_cast<int>(found - names.begin()))[parameter].detach();
}

// How often what the chunk holds was updated: where a variable has a step, bias corrections go by
// it, and the chunk has no other variable.
int64_t ReplicaState::UpdatesOf(const Layout& layout, int shard, const Chunk& chunk,
                                int64_t steps) const {
  std::optional<int64_t> updates;
  ForEachVariable(layout, shard, chunk, [&](size_t variable) {
    const at::Tensor step = StepOf(variable);
    if (step.defined())
      updates = std::max(updates.value_or(0), static_cast<int64_t>(step.item<double>()));
  });
  return updates.value_or(steps);
}

ShardContents ReplicaState::Encode(const Layout& layout, int64_t steps) const {
  const std::vector<Spans> parameters = ShardSpans(layout, served_.specs, served_.tensors);
  const std::vector<std::vector<Spans>> slots = SlotSpans(layout);
  ShardContents contents(layout.chunks.size());
  for (size_t shard = 0; shard < layout.chunks.size(); ++shard) {
    for (size_t c = 0; c < layout.chunks[shard].size(); ++c) {
      const Chunk& chunk = layout.chunks[shard][c];
      if (chunk.rows()) continue;
      proto::ChunkContent& content = contents[shard].emplace_back();
      content.set_shard(static_cast<int>(shard));
      content.set_chunk(static_cast<int>(c));
      content.set_updates(UpdatesOf(layout, static_cast<int>(shard), chunk, steps));
      content.set_parameters(Bytes(parameters[shard], chunk));
      if (steps == 0) continue;  // slots are as the rule begins
      const size_t count = ShapedSlots(chunk.optimizer).size();
      for (size_t s = 0; s < count; ++s) content.add_slots(Bytes(slots[s][shard], chunk));
    }
  }
  EncodeTables(layout, &contents);
  return contents;
}

// Behind the chunks that are ranges, as the layout has them.
void ReplicaState::EncodeTables(const Layout& layout, ShardContents* contents) const {
  struct Rows {
    std::vector<uint64_t> keys;
    std::vector<float> rows;
    std::vector<std::vector<float>> slots;
  };
  std::map<std::tuple<int, int, int>, Rows> chunks;  // by table, server, chunk of the table there
  const LocalEmbeddings& tables = replica_->tables();
  const int servers = static_cast<int>(layout.chunks.size());
  for (int t = 0; t < tables.size(); ++t) {
    const std::vector<RowColumn> columns = EmbeddingTable::Columns(tables.options(t));
    tables.table(t).Export([&](uint64_t key, std::span<const float> row) {
      const RowPlace place = PlaceOfRow(key, servers);
      Rows& rows = chunks[{t, place.server, place.chunk}];
      rows.keys.push_back(key);
      rows.slots.resize(columns.size() - 1);
      auto from = row.begin();
      for (size_t c = 0; c < columns.size(); from += columns[c++].elements) {
        std::vector<float>& into = c == 0 ? rows.rows : rows.slots[c - 1];
        into.insert(into.end(), from, from + columns[c].elements);
      }
    });
  }
  for (int server = 0; server < servers; ++server) {
    std::map<int, int> next;  // by table
    for (size_t c = 0; c < layout.chunks[server].size(); ++c) {
      const Chunk& chunk = layout.chunks[server][c];
      if (!chunk.rows()) continue;
      const int t = TableOf(chunk.table);
      Rows& rows = chunks[{t, server, next[t]++}];
      const auto of_row = static_cast<size_t>(tables.table(t).row_elements());
      // A message is not too large: rows may come in several.
      const size_t most = std::max<size_t>(1, kMostRowBytes / (8 + 4 * of_row));
      for (size_t begin = 0; begin == 0 || begin < rows.keys.size(); begin += most) {
        const size_t count = std::min(most, rows.keys.size() - begin);
        const auto part = [&](const std::vector<float>& of) {
          const size_t each = rows.keys.empty() ? 0 : of.size() / rows.keys.size();
          return std::span(of).subspan(begin * each, count * each);
        };
        proto::ChunkContent& content = (*contents)[server].emplace_back();
        content.set_shard(server);
        content.set_chunk(static_cast<int>(c));
        content.set_updates(tables.table(t).updates());
        content.set_parameters(
            BytesOf(PackRows(std::span(rows.keys).subspan(begin, count), part(rows.rows))));
        for (const std::vector<float>& slot : rows.slots) content.add_slots(BytesOf(part(slot)));
        content.set_more(begin + count < rows.keys.size());
      }
      rows = {};
    }
  }
}

absl::Status ReplicaState::DecodeRows(const Chunk& chunk, const proto::ChunkContent& content,
                                      const std::string& what) {
  EmbeddingTable& table = replica_->tables().table(TableOf(chunk.table));
  const std::vector<RowColumn> columns =
      EmbeddingTable::Columns(replica_->tables().options(TableOf(chunk.table)));
  const auto floats = [](const std::string& bytes) {
    std::vector<float> all(bytes.size() / sizeof(float));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(float));
    return all;
  };
  const std::vector<float> packed = floats(content.parameters());
  const absl::StatusOr<PackedRows> rows = UnpackRows(packed, columns[0].elements);
  if (!rows.ok()) return DataError(fmt::format("{}: {}", what, Message(rows.status())));
  if (static_cast<size_t>(content.slots_size()) != columns.size() - 1)
    return DataError(fmt::format("{} has {} slots", what, content.slots_size()));
  std::vector<std::vector<float>> slots;
  for (const std::string& slot : content.slots()) {
    slots.push_back(floats(slot));
    const auto each = static_cast<size_t>(columns[slots.size()].elements);
    if (slots.back().size() != rows->keys.size() * each)
      return DataError(fmt::format("{} has slots of another size than its rows", what));
  }
  std::vector<float> row(static_cast<size_t>(table.row_elements()));
  for (size_t i = 0; i < rows->keys.size(); ++i) {
    auto to = row.begin();
    for (size_t c = 0; c < columns.size(); ++c) {
      const int64_t each = columns[c].elements;
      const auto from = c == 0 ? rows->rows.begin() : std::span<const float>(slots[c - 1]).begin();
      to = std::copy_n(from + static_cast<int64_t>(i) * each, each, to);
    }
    MUSTER_RETURN_IF_ERROR(table.Restore(rows->keys[i], row));
  }
  table.set_updates(std::max(table.updates(), content.updates()));
  return absl::OkStatus();
}

absl::Status ReplicaState::Decode(const Layout& layout, const ShardContents& contents) {
  restored_step_ = -1;
  const at::NoGradGuard no_grad;
  for (int t = 0; t < replica_->tables().size(); ++t) replica_->tables().Reset(t);
  const std::vector<Spans> parameters = ShardSpans(layout, served_.specs, served_.tensors);
  const std::vector<std::vector<Spans>> slots = SlotSpans(layout);
  std::vector<int64_t> updates(served_.specs.size());  // by variable
  for (size_t shard = 0; shard < layout.chunks.size(); ++shard) {
    const auto& chunks = layout.chunks[shard];
    size_t next = 0;  // message
    for (size_t c = 0; c < chunks.size(); ++c) {
      const Chunk& chunk = chunks[c];
      const std::string what = fmt::format("chunk {} of shard {}", c, shard);
      if (next >= contents[shard].size()) return DataError(fmt::format("{} did not come", what));
      if (chunk.rows()) {
        bool more = true;
        while (more && next < contents[shard].size()) {
          const proto::ChunkContent& content = contents[shard][next++];
          MUSTER_RETURN_IF_ERROR(DecodeRows(chunk, content, what));
          more = content.more();
        }
        continue;
      }
      const proto::ChunkContent& content = contents[shard][next++];
      MUSTER_RETURN_IF_ERROR(Put(content.parameters(), parameters[shard], chunk, what));
      const size_t count = ShapedSlots(chunk.optimizer).size();
      if (static_cast<size_t>(content.slots_size()) != count)
        return DataError(fmt::format("{} has {} slots, not {}", what, content.slots_size(), count));
      for (size_t s = 0; s < count; ++s)
        MUSTER_RETURN_IF_ERROR(
            Put(content.slots(static_cast<int>(s)), slots[s][shard], chunk, what));
      // Chunks of one variable differ by pushes of lost workers alone, which came in part.
      ForEachVariable(layout, static_cast<int>(shard), chunk, [&](size_t variable) {
        updates[variable] = std::max(updates[variable], content.updates());
      });
    }
  }
  for (size_t v = 0; v < updates.size(); ++v)
    if (const at::Tensor step = StepOf(v); step.defined())
      step.fill_(static_cast<double>(updates[v]));
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::Snapshot> ReplicaState::Take(const checkpoint::TrainingState& state) {
  LoopState loop = InitialLoopState(job_, *replica_);  // for the loss scaler's
  loop.steps = state.step;
  loop.position = {state.epoch, state.offset};
  loop.examples = state.examples;
  loop.epoch_loss_sum = state.epoch_loss_sum;
  loop.epoch_examples = state.epoch_examples;
  loop.epoch_metric_sums = state.epoch_metric_sums;
  loop.validation_due = state.validation_due;
  loop.test_due = state.test_due;
  loop.global_batch_size = state.global_batch_size;
  loop.extras = state.extras;
  return taker_.Take(*replica_, loop);
}

void ReplicaState::Describe(StartReport* report) const {
  report->program =
      job_.program.is_string() ? job_.program.get<std::string>() : job_.program.dump();
  for (const NamedModel& model : replica_->models()) {
    for (const auto& [name, parameter] : model.parameters) {
      report->parameters.push_back(
          {model.name, name, parameter.sizes().vec(), parameter.requires_grad()});
    }
    const ParameterCount count = CountParameters(model);
    report->parameter_counts.emplace_back(model.name, count.trained + count.frozen);
  }
  report->groups = DescribeGroups(*replica_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardState>> MakeShardState(const Job& job, Replica* replica) {
  MUSTER_ASSIGN_OR_RETURN(ServedVariables served, VariablesToServe(replica));
  MUSTER_RETURN_IF_ERROR(CheckSavable(*replica));
  return std::make_unique<ReplicaState>(job, replica, std::move(served));
}

std::unique_ptr<Director> Director::Make(DirectorOptions options) {
  return MakeDirector(std::move(options), [](const Job& job, const DirectorStart& start) {
    return MakeShardState(job, start.replica);
  });
}

}  // namespace muster
