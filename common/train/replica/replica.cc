#include "common/train/replica/replica.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <new>
#include <set>

#include "common/base/faults/process_fault.h"
#include "common/base/glob.h"
#include "common/base/hash.h"
#include "common/data/pipeline.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/embedding/table_options.h"
#include "common/train/replica/parameter_groups.h"
#include "common/train/step/single_example.h"
#include "common/train/step/step.h"

namespace muster {

const char* SplitName(Split split) {
  constexpr const char* kNames[] = {"train", "validation", "test"};
  return kNames[static_cast<int>(split)];
}

namespace {

// Replaces some errors of LibTorch with texts that say what the user can do. Returns others
// unchanged.
std::string Reworded(const std::string& what) {
  const size_t deterministic = what.find(" does not have a deterministic implementation");
  if (deterministic != std::string::npos) {
    return fmt::format(
        "deterministic is true, and {} has no deterministic implementation on this "
        "device: take another operator, or set \"deterministic\": false",
        what.substr(0, deterministic));
  }
  if (what.starts_with("Expected more than 1 value per channel when training")) {
    return fmt::format(
        "a replica's part of the batch has a single example, of which batch "
        "normalisation has no statistics: {}",
        kSingleExampleFix);
  }
  return what;
}

}  // namespace

absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body) {
  std::string what;
  FaultCause fault = FaultCause::kNone;
  try {
    body();
    return absl::OkStatus();
  } catch (const StatusError& error) {
    return error.status();
  } catch (const c10::OutOfMemoryError& error) {
    // The device has too little memory: an error of the program.
    what = error.what_without_backtrace();
  } catch (const c10::AcceleratorError& error) {
    what = error.what_without_backtrace();
    fault = FaultOfCuda(error.get_error_code());
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
    fault = FaultOfText(what);
  } catch (const std::bad_alloc&) {
    // Other processes use the host's memory too, so the cause is uncertain.
    what = "this host has no memory left";
    fault = FaultCause::kUncertain;
  } catch (const std::exception& error) {
    what = error.what();
    fault = FaultOfText(what);
  } catch (...) {
    what = "an exception that is no std::exception";
  }
  // Keeps only the first line, because LibTorch appends its call stack.
  what = what.substr(0, what.find('\n'));
  return FaultStatus(fault, fmt::format("{} failed: {}", where, Reworded(what)));
}

// ---- Builder

class BuilderImpl {
 public:
  BuilderImpl(Replica* replica, const Job& job)
      : replica(replica), job(job), args(job.program_args, "program_args") {}

  void CheckName(const char* kind, const std::string& name) {
    const bool good = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    if (!good)
      Fail(fmt::format("{} name \"{}\" must be made of letters, digits, '_' and '-'", kind, name));
    if (!names.insert(fmt::format("{} {}", kind, name)).second)
      Fail(fmt::format("two {}s are named \"{}\"", kind, name));
  }
  [[noreturn]] void Fail(const std::string& what) {
    throw StatusError(ProgramError("build: " + what));
  }

  // Returns the job's value for optimizer or table `name`, or the program's value if the job has
  // none. The job has either one value for all, or an object with a value for each name.
  Json Choose(const Json& of_job, const std::string& name, const Json& of_program) {
    if (of_job.is_null()) return of_program;
    if (of_job.is_object() && of_job.contains(name) && !of_job.contains("name"))
      return of_job[name];
    if (of_job.is_object() && !of_job.contains("name")) return of_program;
    return of_job;
  }

  Replica* const replica;
  const Job& job;
  JsonObject args;
  std::set<std::string> names;
  std::vector<std::pair<std::string, BufferMode>> buffer_modes;  // Pairs of a pattern and its mode.
  std::vector<RegisteredCallback> callbacks;

  void AddModel(const std::string& name, std::shared_ptr<torch::nn::Module> module) {
    CheckName("model", name);
    if (module == nullptr) Fail(fmt::format("model \"{}\" is null", name));
    module->to(replica->device_);
    replica->models_.push_back({name, std::move(module), {}, {}});
  }

  NamedModel* FindModel(const std::string& name) {
    const auto model = std::find_if(replica->models_.begin(), replica->models_.end(),
                                    [&](const NamedModel& m) { return m.name == name; });
    return model == replica->models_.end() ? nullptr : &*model;
  }

  void AddLoad(const std::string& model, const std::string& path, LoadOptions options) {
    if (FindModel(model) == nullptr)
      Fail(fmt::format("load names a model \"{}\" that was not declared before it", model));
    LoadSpec spec{model,
                  path,
                  options.strict,
                  std::move(options.rename),
                  std::move(options.prefix),
                  fmt::format("builder.load(\"{}\")", model)};
    const absl::Status checked = CheckRename(spec);
    if (!checked.ok()) Fail(std::string(Message(checked)));
    replica->loads_.push_back(std::move(spec));
  }

  // Collects the parameters and buffers of all models. Called at the end of build(), because
  // modules may register tensors after the program has declared the model.
  void CollectTensors() {
    for (NamedModel& model : replica->models_) {
      model.module->to(replica->device_);
      for (const auto& item : model.module->named_parameters())
        model.parameters.emplace_back(item.key(), item.value());
      for (const auto& item : model.module->named_buffers()) {
        model.buffers.emplace_back(item.key(), item.value());
        replica->buffers_.push_back({model.name + "." + item.key(), item.value(), std::nullopt});
      }
    }
    std::vector<bool> matched(buffer_modes.size());
    for (NamedBuffer& buffer : replica->buffers_) {
      for (size_t i = 0; i < buffer_modes.size(); ++i) {
        if (!MatchesGlob(buffer_modes[i].first, buffer.name)) continue;
        matched[i] = true;
        if (!buffer.mode) buffer.mode = buffer_modes[i].second;
      }
      const bool floats = buffer.tensor.is_floating_point();
      if (buffer.mode == BufferMode::kMean && !floats) {
        Fail(
            fmt::format("buffer \"{}\" is of type {}, of which there is no mean: declare it kSame "
                        "or kPerReplica",
                        buffer.name, c10::toString(buffer.tensor.scalar_type())));
      }
      if (floats && buffer.mode.value_or(BufferMode::kMean) == BufferMode::kMean)
        replica->float_buffers_.push_back(buffer.tensor);
      buffer.averaged = buffer.mode == BufferMode::kMean;
    }
    for (size_t i = 0; i < buffer_modes.size(); ++i) {
      if (!matched[i])
        Fail(fmt::format("no buffer matches \"{}\"; a buffer's name is \"<model>.<buffer>\"",
                         buffer_modes[i].first));
    }
  }

  void CollectParameters() {
    for (NamedOptimizer& optimizer : replica->optimizers()) {
      for (const std::string& name : optimizer.models) AddParameters(*FindModel(name), &optimizer);
      const auto& all = optimizer.candidates;
      if (std::none_of(all.begin(), all.end(), [](const auto& p) { return p.requires_grad(); }))
        Fail(fmt::format("optimizer \"{}\" has no parameter that requires a gradient",
                         optimizer.name));
    }
  }

  OptimizerHandle AddOptimizer(const std::string& name, const std::vector<std::string>& models,
                               Json spec, Json learning_rate) {
    CheckName("optimizer", name);
    NamedOptimizer optimizer;
    optimizer.name = name;
    for (const std::string& model_name : models) {
      if (FindModel(model_name) == nullptr)
        Fail(fmt::format("optimizer \"{}\" names a model \"{}\" that was not declared before it",
                         name, model_name));
    }
    optimizer.models = models;
    const Json of_program = spec;
    spec = WithProgramGroups(Choose(job.optimizer, name, spec), of_program);
    optimizer.learning_rate = Choose(job.learning_rate, name, learning_rate);
    if (optimizer.learning_rate.is_null()) optimizer.learning_rate = DefaultLearningRate(spec);
    optimizer.spec = spec;
    replica->optimizers().push_back(std::move(optimizer));
    return {static_cast<int>(replica->optimizers().size()) - 1};
  }

  void AddDataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
                  DatasetOptions options) {
    CheckName("dataset", SplitName(split));
    replica->datasets_[split] = {std::move(make), options};
  }

  DatasetHandle AddNamedDataset(const std::string& name,
                                std::function<absl::StatusOr<data::DatasetPtr>()> make,
                                NamedDatasetOptions options) {
    CheckName("dataset", name);
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      if (name == SplitName(split))
        Fail(fmt::format("the dataset name \"{}\" is a split's: declare it by Split", name));
    if (options.batch_size < 0)
      Fail(fmt::format("the batch_size of dataset \"{}\" must be above 0, is {}", name,
                       options.batch_size));
    replica->named_datasets_.push_back({name, std::move(make), options});
    return {static_cast<int>(replica->named_datasets_.size()) - 1};
  }

  void SetTestEvery(int64_t epochs) {
    if (epochs < 1) Fail(fmt::format("test_every needs at least 1 epoch, got {}", epochs));
    replica->test_every_ = epochs;
  }

  EmbeddingHandle AddEmbedding(const std::string& name, const EmbeddingOptions& options) {
    CheckName("embedding", name);
    NamedEmbedding table;
    table.name = name;
    if (options.width < 1)
      Fail(
          fmt::format("the width of embedding \"{}\" must be above 0, is {}", name, options.width));
    table.optimizer = Choose(job.optimizer, name, options.optimizer);
    table.learning_rate = Choose(job.learning_rate, name, options.learning_rate);
    if (table.learning_rate.is_null()) table.learning_rate = DefaultLearningRate(table.optimizer);
    auto of_table = TableOptions(name, options, table.optimizer, job.embeddings);
    if (!of_table.ok()) throw StatusError(of_table.status());
    table.options = *std::move(of_table);
    table.options.seed = MixSeed(job.seed, {Fnv1a(name)});
    replica->embeddings_.push_back(std::move(table));
    return {static_cast<int>(replica->embeddings_.size()) - 1};
  }

  // Fails if a table has the name of an optimizer or a model. The job file refers to tables like
  // optimizers, and checkpoints like models.
  void CheckEmbeddingNames() {
    for (const NamedEmbedding& table : replica->embeddings_) {
      for (const NamedOptimizer& optimizer : replica->optimizers()) {
        if (optimizer.name == table.name)
          Fail(fmt::format("an optimizer and an embedding are named \"{}\"", table.name));
      }
      for (const NamedModel& model : replica->models_) {
        if (model.name == table.name)
          Fail(fmt::format("a model and an embedding are named \"{}\"", table.name));
        const auto clashes = [&](const auto& named) {
          return named.first == table.name + ".keys" || named.first == table.name + ".rows";
        };
        if (std::any_of(model.parameters.begin(), model.parameters.end(), clashes) ||
            std::any_of(model.buffers.begin(), model.buffers.end(), clashes))
          Fail(fmt::format("a part of model \"{}\" and an embedding are named \"{}\"", model.name,
                           table.name));
      }
    }
  }

  std::vector<data::Column> DataColumns(Split split) const {
    data::JobDatasets& datasets = *replica->job_datasets_;
    if (SplitOf(datasets.data(), split).kind != data::DataSplit::Kind::kFiles) return {};
    const auto columns = datasets.Columns(split);
    if (!columns.ok()) throw StatusError(columns.status());
    return *columns;
  }

  data::Batch DataExamples(Split split, int64_t count) const {
    data::JobDatasets& datasets = *replica->job_datasets_;
    if (SplitOf(datasets.data(), split).kind != data::DataSplit::Kind::kFiles) return {};
    // If each replica reads its own share of the files, a host may have only some files. The first
    // file is enough here.
    const bool shared =
        split == Split::kTrain && datasets.options().auto_shard == data::AutoShard::kFile;
    absl::StatusOr<data::DatasetPtr> dataset;
    if (shared) {
      dataset = datasets.OpenFirst();
    } else {
      const auto open = datasets.Open(split);
      ThrowIfError(open.status());
      dataset = open->dataset;
    }
    ThrowIfError(dataset.status());
    auto batch = FirstExamples(**dataset, std::clamp<int64_t>(count, 0, (*dataset)->size()));
    if (!batch.ok()) throw StatusError(batch.status());
    return *std::move(batch);
  }

  absl::StatusOr<data::Batch> FirstExamples(const data::Dataset& dataset, int64_t count) const {
    const data::Context context{job.seed, 0};
    if (!replica->job_datasets_->options().skip_damaged)
      return data::LoadExamples(dataset, {0, count}, context);
    for (int64_t end = count;; end = std::min(2 * end, dataset.size())) {
      MUSTER_ASSIGN_OR_RETURN(data::PresentExamples present,
                              data::LoadPresentExamples(dataset, {0, end}, context));
      if (present.count < count && end < dataset.size()) continue;
      for (at::Tensor& component : present.batch)
        component = component.narrow(0, 0, std::min(count, present.count));
      return std::move(present.batch);
    }
  }

  void AddSchedule(const std::string& name, ScheduleFactory make) {
    CheckName("schedule", name);
    if (IsBuiltInSchedule(name))
      Fail(fmt::format("the schedule name \"{}\" is a built-in one's", name));
    if (!make) Fail(fmt::format("schedule \"{}\" is null", name));
    replica->schedules_[name] = std::move(make);
  }

  void AddCallback(RegisteredCallback callback) {
    CheckName("callback", callback.name);
    if (callback.callback == nullptr && !callback.make)
      Fail(fmt::format("the callback \"{}\" is null", callback.name));
    callbacks.push_back(std::move(callback));
  }

  MetricHandle AddMetric(const std::string& name, std::shared_ptr<const Metric> metric) {
    CheckName("metric", name);
    if (name == "loss") Fail("the metric name \"loss\" is the loop's own");
    replica->metrics_.push_back({name, std::move(metric)});
    return {static_cast<int>(replica->metrics_.size()) - 1};
  }
};

JsonObject& Builder::args() { return impl_->args; }
uint64_t Builder::seed() const { return impl_->job.seed; }
at::Device Builder::device() const { return impl_->replica->device(); }
void Builder::model(const std::string& name, std::shared_ptr<torch::nn::Module> module) {
  impl_->AddModel(name, std::move(module));
}
void Builder::load(const std::string& model, const std::string& path, LoadOptions options) {
  impl_->AddLoad(model, path, std::move(options));
}
void Builder::buffer(const std::string& pattern, BufferMode mode) {
  impl_->buffer_modes.emplace_back(pattern, mode);
}
OptimizerHandle Builder::optimizer(const std::string& name, const std::vector<std::string>& models,
                                   Json optimizer, Json learning_rate) {
  return impl_->AddOptimizer(name, models, std::move(optimizer), std::move(learning_rate));
}
void Builder::dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
                      DatasetOptions options) {
  impl_->AddDataset(split, std::move(make), options);
}
std::vector<data::Column> Builder::data_columns(Split split) { return impl_->DataColumns(split); }
data::Batch Builder::data_examples(Split split, int64_t count) {
  return impl_->DataExamples(split, count);
}
DatasetHandle Builder::dataset(const std::string& name,
                               std::function<absl::StatusOr<data::DatasetPtr>()> make,
                               NamedDatasetOptions options) {
  return impl_->AddNamedDataset(name, std::move(make), options);
}
void Builder::test_every(int64_t epochs) { impl_->SetTestEvery(epochs); }
EmbeddingHandle Builder::embedding(const std::string& name, EmbeddingOptions options) {
  return impl_->AddEmbedding(name, options);
}
void Builder::callback(const std::string& name, std::shared_ptr<Callback> callback) {
  impl_->AddCallback({name, std::move(callback), {}});
}
void Builder::callback(const std::string& name,
                       std::function<std::shared_ptr<Callback>(JsonObject& keys)> make) {
  impl_->AddCallback({name, nullptr, std::move(make)});
}
MetricHandle Builder::metric(const std::string& name, std::shared_ptr<const Metric> metric) {
  return impl_->AddMetric(name, std::move(metric));
}
void Builder::schedule(const std::string& name, ScheduleFactory make) {
  impl_->AddSchedule(name, std::move(make));
}

// ---- Replica

Replica::Replica(const Job& job, at::Device device)
    : job_(job),
      device_(device),
      optimizer_set_(job, device, metrics_),
      callbacks_(std::make_unique<CallbackList>()) {}

absl::Status Replica::AddCallbacks(const std::vector<RegisteredCallback>& registered) {
  KeptWeights::NamedTensors own;
  size_t buffer = 0;
  for (const NamedModel& model : models_) {
    const std::string prefix = models_.size() == 1 ? "" : model.name + ".";
    for (const auto& [name, parameter] : model.parameters)
      own.emplace_back(prefix + name, parameter);
    for (const auto& [name, tensor] : model.buffers)
      if (buffers_[buffer++].mode != BufferMode::kPerReplica)
        own.emplace_back(prefix + name, tensor);
  }
  kept_ = std::make_unique<KeptWeights>(std::move(own));
  CallbackFacts facts;
  facts.strategy = job_.strategy.value_or(StrategyKind::kMirrored);
  facts.validates = datasets_.contains(Split::kValidation);
  facts.writes = !job_.model_dir.empty();
  facts.embeddings = !embeddings_.empty();
  for (const NamedOptimizer& optimizer : optimizers())
    facts.rates.push_back({optimizer.name, optimizer.learning_rate});
  MUSTER_ASSIGN_OR_RETURN(*callbacks_, MakeCallbacks(job_.callbacks, registered, facts));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Make(const Job& job,
                                                       const ProgramFactory& factory,
                                                       at::Device device, const Replica* first) {
  std::unique_ptr<Replica> replica(new Replica(job, device));
  if (first != nullptr) {
    replica->job_datasets_ = first->job_datasets_;
  } else {
    MUSTER_ASSIGN_OR_RETURN(replica->job_datasets_, data::JobDatasets::Make(job.data, job.folder));
  }
  BuilderImpl impl(replica.get(), job);
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("build", [&] {
    at::manual_seed(job.seed);
    replica->program_ = factory();
    Builder builder(&impl);
    replica->program_->build(builder);
    impl.CollectTensors();
    impl.CollectParameters();
    impl.CheckEmbeddingNames();
  }));
  MUSTER_RETURN_IF_ERROR(impl.args.Finish());
  if (replica->models_.empty()) return ProgramError("build: the program declares no model");
  MUSTER_RETURN_IF_ERROR(replica->ReplaceDatasets());
  std::vector<std::string> table_names;
  for (const NamedEmbedding& table : replica->embeddings_) table_names.push_back(table.name);
  MUSTER_RETURN_IF_ERROR(CheckTableNames(job.embeddings, table_names));
  // An object without "name" has one entry for each optimizer or table. Checks that they exist.
  for (const auto& [key, value] :
       {std::pair("optimizer", &job.optimizer), std::pair("learning_rate", &job.learning_rate)}) {
    if (!value->is_object() || value->contains("name")) continue;
    std::vector<std::string> names = table_names;
    for (const NamedOptimizer& optimizer : replica->optimizers()) names.push_back(optimizer.name);
    for (const auto& item : value->items()) {
      if (std::find(names.begin(), names.end(), item.key()) != names.end()) continue;
      const std::string nearest = Nearest(item.key(), names);
      return ConfigurationError(fmt::format(
          "{}.{} names no optimizer of this program{}; give \"name\", or one object for each of "
          "its optimizers",
          key, item.key(), nearest.empty() ? "" : fmt::format(", did you mean \"{}\"", nearest)));
    }
  }
  MUSTER_RETURN_IF_ERROR(replica->AddCallbacks(impl.callbacks));
  MUSTER_RETURN_IF_ERROR(MakeRules(replica.get()));
  replica->optimizer_set_.EndBuild();
  std::vector<push_pull::EmbeddingTable::Options> tables;
  for (const NamedEmbedding& table : replica->embeddings_) tables.push_back(table.options);
  replica->tables_ = std::make_shared<LocalEmbeddings>(std::move(tables));
  return replica;
}

absl::Status Replica::ReplaceDatasets() {
  using Kind = data::DataSplit::Kind;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const data::DataSplit& of_job = SplitOf(job_datasets_->data(), split);
    if (of_job.kind == Kind::kNone) datasets_.erase(split);
    if (of_job.kind == Kind::kFiles) {
      datasets_[split].make = [jobs = job_datasets_, split]() -> absl::StatusOr<data::DatasetPtr> {
        MUSTER_ASSIGN_OR_RETURN(data::OpenSplit open, jobs->Open(split));
        return open.dataset;
      };
    }
    if (of_job.kind == Kind::kProgram && !of_job.key.empty() && !datasets_.contains(split)) {
      return ConfigurationError(
          fmt::format("{} is \"program\", but the program declares no {} dataset: name files",
                      of_job.key, SplitName(split)));
    }
  }
  if (datasets_.contains(Split::kTrain)) return absl::OkStatus();
  return ProgramError(
      "build: the program declares no dataset for training, and the job has no data");
}

Replica::~Replica() = default;

namespace {
void AppendSlots(const Optimizer& rule, std::vector<at::Tensor>* all) {
  for (size_t s = 0; s < rule.slot_names().size(); ++s) {
    const auto& slot = rule.slot(static_cast<int>(s));
    all->insert(all->end(), slot.begin(), slot.end());
  }
}
}  // namespace

std::vector<at::Tensor> Replica::state() const {
  std::vector<at::Tensor> all = replicated_state();
  for (const NamedOptimizer& optimizer : optimizers())
    if (optimizer.rule->central()) AppendSlots(*optimizer.rule, &all);
  return all;
}

std::vector<at::Tensor> Replica::replicated_state() const {
  std::vector<at::Tensor> all;
  for (const NamedModel& model : models_) {
    for (const auto& [name, parameter] : model.parameters) all.push_back(parameter);
  }
  for (const NamedBuffer& buffer : buffers_)
    if (buffer.mode != BufferMode::kPerReplica) all.push_back(buffer.tensor);
  for (const NamedOptimizer& optimizer : optimizers())
    if (!optimizer.rule->central()) AppendSlots(*optimizer.rule, &all);
  return all;
}

std::vector<uint8_t> Replica::Trainable() const {
  std::vector<uint8_t> all = optimizer_set_.Trainable();
  for (const NamedBuffer& buffer : buffers_) all.push_back(buffer.averaged ? 1 : 0);
  return all;
}

absl::Status Replica::SetTrainable(const std::vector<uint8_t>& trainable) {
  size_t at = 0;
  MUSTER_RETURN_IF_ERROR(optimizer_set_.SetTrainable(trainable, &at));
  for (NamedBuffer& buffer : buffers_) buffer.averaged = trainable.at(at++) != 0;
  return absl::OkStatus();
}

std::vector<bool> Replica::requires_grad() const {
  std::vector<bool> all;
  for (const NamedModel& model : models_)
    for (const auto& [name, parameter] : model.parameters) all.push_back(parameter.requires_grad());
  return all;
}

void Replica::set_requires_grad(const std::vector<bool>& requires_grad) {
  size_t at = 0;
  for (NamedModel& model : models_) {
    for (auto& [name, parameter] : model.parameters) {
      const bool wanted = requires_grad.at(at++);
      if (parameter.requires_grad() != wanted) parameter.set_requires_grad(wanted);
    }
  }
}

uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash) {
  const at::Tensor bytes = tensor.detach().contiguous().to(at::kCPU);
  const char* data = static_cast<const char*>(bytes.const_data_ptr());
  for (size_t i = 0; i + 8 <= bytes.nbytes(); i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    hash = (hash ^ word) * 1099511628211ull;
    hash ^= hash >> 29;
  }
  for (size_t i = bytes.nbytes() / 8 * 8; i < bytes.nbytes(); ++i)
    hash = (hash ^ static_cast<unsigned char>(data[i])) * 1099511628211ull;
  return hash;
}

int64_t Replica::Digest() const {
  at::NoGradGuard no_grad;
  uint64_t hash = kDigestSeed;
  for (const NamedModel& model : models_) {
    for (const auto& [name, parameter] : model.parameters) hash = DigestOfTensor(parameter, hash);
  }
  return static_cast<int64_t>(hash ^ tables_->Digest());
}

std::vector<NamedBuffer> Replica::replica_buffers() const {
  std::vector<NamedBuffer> own;
  std::copy_if(buffers_.begin(), buffers_.end(), std::back_inserter(own),
               [](const NamedBuffer& b) { return b.mode == BufferMode::kPerReplica; });
  return own;
}

absl::Status Replica::CheckNothingRegisteredLate() const {
  const auto check = [](const NamedModel& model, const char* what, const auto& now,
                        const auto& known) -> absl::Status {
    std::set<const at::TensorImpl*> seen;
    for (const auto& [name, tensor] : known) seen.insert(tensor.unsafeGetTensorImpl());
    for (const auto& item : now) {
      if (seen.contains(item.value().unsafeGetTensorImpl())) continue;
      return ProgramError(
          fmt::format("{} \"{}.{}\" was registered or replaced after build(), so that it is "
                      "neither trained nor "
                      "saved: register it in build(), and change it in place",
                      what, model.name, item.key()));
    }
    return absl::OkStatus();
  };
  for (const NamedModel& model : models_) {
    MUSTER_RETURN_IF_ERROR(
        check(model, "parameter", model.module->named_parameters(), model.parameters));
    MUSTER_RETURN_IF_ERROR(check(model, "buffer", model.module->named_buffers(), model.buffers));
  }
  return absl::OkStatus();
}

EvaluationModes::EvaluationModes(Replica* replica) {
  for (const NamedModel& model : replica->models()) {
    for (const auto& module : model.module->modules())
      modes_.emplace_back(module, module->is_training());
  }
  for (const NamedModel& model : replica->models()) model.module->eval();
}

EvaluationModes::~EvaluationModes() {
  // train() of a module also changes its children. modules() has parents first, so children are
  // restored last.
  for (const auto& [module, training] : modes_)
    if (module->is_training() != training) module->train(training);
}

absl::Status Replica::Attach(collective::Communicator* communicator, const ScheduleContext& context,
                             const CollectiveOptions& options) {
  // Makes room for the buffers that are known to be averaged. Steps may find more.
  int64_t buffer_room = 0;
  for (const NamedBuffer& buffer : buffers_) {
    if (buffer.averaged && buffer.tensor.scalar_type() != at::kDouble)
      buffer_room += buffer.tensor.numel();
  }
  return AttachSinks(optimizer_set_.MakeSinks(communicator, options, buffer_room), context);
}

absl::Status Replica::Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                             const ScheduleContext& context) {
  optimizer_set_.BeginOnServers();
  return AttachSinks(std::move(sinks), context);
}

absl::Status Replica::AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                                  const ScheduleContext& context) {
  for (size_t o = 0; o < optimizers().size(); ++o) {
    MUSTER_RETURN_IF_ERROR(
        MakeScheduleOf(optimizers()[o].learning_rate, context, &optimizers()[o].schedule));
    optimizers()[o].gradients = std::move(sinks.at(o));
  }
  for (NamedEmbedding& table : embeddings_) {
    MUSTER_RETURN_IF_ERROR(MakeScheduleOf(table.learning_rate, context, &table.schedule));
  }
  return absl::OkStatus();
}

absl::Status Replica::MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                                     std::unique_ptr<Schedule>* schedule) const {
  // A schedule of the program runs code of the program.
  return CatchProgramErrors("making the learning rate's schedule", [&] {
    auto made = MakeSchedule(learning_rate, context, schedules_);
    ThrowIfError(made.status());
    *schedule = *std::move(made);
  });
}

bool Replica::scales_with_replicas() const {
  const auto scales = [](const auto& named) { return ScalesWithReplicas(named.learning_rate); };
  return std::any_of(optimizers().begin(), optimizers().end(), scales) ||
         std::any_of(embeddings_.begin(), embeddings_.end(), scales);
}

}  // namespace muster
