#include "deploy/tool/check/check_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "common/job/program_path.h"
#include "common/telemetry/progress.h"
#include "common/train/replica/parameter_groups.h"
#include "common/train/state/weights.h"
#include "muster/stamp.h"

namespace muster {
namespace {

std::string Size(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string Shape(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

// Counts shared memory once.
class Memory {
 public:
  void Add(const at::Tensor& tensor) {
    if (seen_.insert(tensor.unsafeGetTensorImpl()).second)
      bytes_ += static_cast<int64_t>(tensor.nbytes());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::unordered_set<const void*> seen_;
  int64_t bytes_ = 0;
};

const char* ModeName(BufferMode mode) {
  constexpr const char* kNames[] = {"kMean", "kSame", "kPerReplica"};
  return kNames[static_cast<int>(mode)];
}

// Describes an optimizer without its groups, which have separate lines.
std::string Rule(Json spec) {
  if (!spec.is_object()) return spec.is_string() ? spec.get<std::string>() : spec.dump();
  spec.erase("groups");
  if (spec.size() == 1 && spec.contains("name")) return Rule(spec["name"]);
  return spec.dump();
}

void PrintModel(const NamedModel& model, const Replica& replica) {
  fmt::print("model {}\n", model.name);
  for (const auto& [name, value] : model.parameters) {
    const auto& first =
        std::find_if(model.parameters.begin(), model.parameters.end(),
                     [&value = value](const auto& other) { return other.second.is_same(value); })
            ->first;
    fmt::print("  {}: {}{}{}\n", name, Shape(value), value.requires_grad() ? "" : ", frozen",
               first == name ? "" : fmt::format(", tied to {}", first));
  }
  for (const auto& [name, value] : model.buffers) {
    std::string mode;
    for (const NamedBuffer& buffer : replica.buffers())
      if (buffer.mode && buffer.tensor.is_same(value))
        mode = fmt::format(", {}", ModeName(*buffer.mode));
    fmt::print("  {}: {}, buffer{}\n", name, Shape(value), mode);
  }
  const auto [count, frozen] = CountParameters(model);
  fmt::print("  {} parameters{}\n", FormatGrouped(count),
             frozen == 0 ? "" : fmt::format(" are trained, {} frozen", FormatGrouped(frozen)));
}

}  // namespace

void CheckObserver::OnStep(const StepReport& report) {
  ++steps_;
  std::string values;
  for (const auto& [name, value] : report.values) values += fmt::format(", {} {:.6g}", name, value);
  for (const auto& [name, value] : report.metrics)
    if (name != "loss") values += fmt::format(", {} {:.6g}", name, value);
  fmt::print("  step {}: loss {:.6g}{}; {:.3f} s forward, backward and update\n", report.step,
             report.loss, values, report.compute_seconds);
}

void CheckObserver::OnEpoch(const EpochReport& report) {
  if (report.split == SplitName(Split::kTrain)) return;
  evaluated_.insert(report.split);
  std::string values;
  for (const auto& [name, value] : report.metrics)
    values += fmt::format("{}{} {:.6g}", values.empty() ? "" : ", ", name, value);
  fmt::print("  {}: {} over {} examples\n", report.split, values, report.examples);
}

void PrintJob(const Job& job) {
  const std::string file = ProgramFile(job.program);
  if (file.empty()) {
    fmt::print("program {}\n", Dump(job.program));
  } else {
    fmt::print("program {}, {}\n", file, job.digests.value("program", std::string()));
  }
  fmt::print("  with {}\n", MUSTER_STAMP);
}

void PrintProgram(const Replica& replica) {
  for (const NamedModel& model : replica.models()) PrintModel(model, replica);
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    fmt::print("optimizer {}: {}, learning rate {}\n", optimizer.name, Rule(optimizer.spec),
               optimizer.learning_rate.dump());
  }
  for (const std::string& line : DescribeGroups(replica)) fmt::print("{}\n", line);
  for (const NamedEmbedding& table : replica.embeddings())
    fmt::print("embedding {}: rows of {}\n", table.name, table.options.width);
  for (const NamedDataset& dataset : replica.named_datasets())
    fmt::print("dataset {}, {}\n", dataset.name,
               dataset.options.distributed ? "distributed" : "not distributed");
}

absl::Status PrintLoads(const Job& job, const Replica& replica, bool are_read) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<LoadSpec> loads, LoadsOf(job, replica));
  for (const LoadSpec& load : loads) {
    fmt::print("weights of {}: {}{}{}\n", load.model, load.path, load.strict ? "" : ", not strict",
               are_read ? "" : ", not read: the checkpoint has its own");
  }
  return absl::OkStatus();
}

absl::Status PrintData(const Job& job, const Trainer& trainer, int64_t batch) {
  for (const auto& [split, dataset] : trainer.datasets()) {
    const int64_t size = dataset->size();
    if (size < 0) {
      fmt::print("{} data: a stream, whose size is not known\n", SplitName(split));
      continue;
    }
    std::vector<int64_t> first(std::min(batch, size));
    std::iota(first.begin(), first.end(), 0);
    absl::StatusOr<data::Batch> tensors;
    MUSTER_RETURN_IF_ERROR(
        CatchProgramErrors(fmt::format("reading the {} data", SplitName(split)), [&] {
          tensors = dataset->GetBatch(first, {job.seed, /*epoch=*/0});
        }));
    MUSTER_RETURN_IF_ERROR(tensors.status());
    std::vector<std::string> shapes;
    for (const at::Tensor& tensor : *tensors) shapes.push_back(Shape(tensor));
    fmt::print("{} data{}, a batch: {}\n", SplitName(split),
               split == Split::kTrain ? fmt::format(": {} examples", FormatGrouped(size)) : "",
               fmt::join(shapes, ", "));
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> CopyBuffers(const Replica& replica) {
  std::vector<at::Tensor> copies;
  for (const NamedBuffer& buffer : replica.buffers())
    copies.push_back(buffer.tensor.detach().clone());
  return copies;
}

std::vector<NamedBuffer> ChangedBuffers(const Replica& replica,
                                        const std::vector<at::Tensor>& before) {
  std::vector<NamedBuffer> changed;
  for (size_t i = 0; i < before.size(); ++i) {
    const NamedBuffer& buffer = replica.buffers()[i];
    if (buffer.tensor.is_floating_point() && !buffer.tensor.equal(before[i]))
      changed.push_back(buffer);
  }
  return changed;
}

void PrintAveraged(const std::vector<NamedBuffer>& changed) {
  std::vector<std::string> averaged;
  for (const NamedBuffer& buffer : changed)
    if (!buffer.mode) averaged.push_back(buffer.name);
  if (!averaged.empty())
    fmt::print("  buffers that the step changed, averaged over replicas (kMean): {}\n",
               fmt::join(averaged, ", "));
}

void PrintMemory(const Replica& replica) {
  Memory weights, state;
  for (const NamedModel& model : replica.models())
    for (const auto* tensors : {&model.parameters, &model.buffers})
      for (const auto& [name, tensor] : *tensors) weights.Add(tensor);
  for (const at::Tensor& tensor : replica.state()) state.Add(tensor);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("memory: models {}, optimizers {}, this process at most {}\n", Size(weights.bytes()),
             Size(std::max<int64_t>(0, state.bytes() - weights.bytes())),
             Size(usage.ru_maxrss * 1024));
}

}  // namespace muster
