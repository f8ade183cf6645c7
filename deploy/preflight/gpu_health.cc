#include "deploy/preflight/gpu_health.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/peer_text.h"
#include "common/telemetry/nvml.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/processes/child_output.h"
#include "muster/json.h"

namespace muster::preflight {
namespace {

// ---- Reading NVML. These are constants of nvml.h.

constexpr int kUncorrected = 1, kCorrected = 0;  // nvmlMemoryErrorType_t
constexpr int kVolatile = 0;                     // nvmlEccCounterType_t
constexpr int kTemperatureGpu = 0;               // nvmlTemperatureSensors_t
constexpr unsigned kMaxLinks = 18;               // NVML_NVLINK_MAX_LINKS

struct Reason {
  uint64_t bit;
  const char* text;
};
// nvmlClocksThrottleReason*. The other reasons are normal: idle, set by the user, the power limit
// under load.
constexpr Reason kReasons[] = {{0x20, "it is hot (software thermal slowdown)"},
                               {0x40, "it is hot (hardware thermal slowdown)"},
                               {0x80, "its power supply limits it (hardware power brake)"},
                               {0x08, "the hardware slows it down"}};

void ReadMemory(const Nvml& nvml, Nvml::Device device, GpuState* gpu) {
  unsigned long long count = 0;
  if (Nvml::Call(nvml.ecc_errors, device, kUncorrected, kVolatile, &count))
    gpu->uncorrected_errors = static_cast<int64_t>(count);
  if (Nvml::Call(nvml.ecc_errors, device, kCorrected, kVolatile, &count))
    gpu->corrected_errors = static_cast<int64_t>(count);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (Nvml::Call(nvml.remapped_rows, device, &corrected, &uncorrected, &pending, &failed)) {
    gpu->repair_pending = pending != 0;
    gpu->repair_failed = failed != 0;
  }
  int retired = 0;  // GPUs before Ampere retire pages instead.
  if (Nvml::Call(nvml.retired_pages_pending, device, &retired))
    gpu->repair_pending = gpu->repair_pending || retired != 0;
}

GpuState ReadGpu(const Nvml& nvml, Nvml::Device device) {
  GpuState gpu;
  char text[128] = {};
  if (Nvml::Call(nvml.name, device, text, unsigned{sizeof text})) gpu.name = text;
  if (Nvml::Call(nvml.uuid, device, text, unsigned{sizeof text})) gpu.uuid = text;
  if (auto instances = nvml.InstancesOf(device)) {
    gpu.divided = true;
    gpu.instances = *std::move(instances);
  }
  ReadMemory(nvml, device, &gpu);
  unsigned long long reasons = 0;
  if (Nvml::Call(nvml.throttle_reasons, device, &reasons)) gpu.throttle_reasons = reasons;
  unsigned degrees = 0;
  if (Nvml::Call(nvml.temperature, device, kTemperatureGpu, &degrees))
    gpu.temperature = static_cast<int>(degrees);
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int active = 0;
    if (Nvml::Call(nvml.link_state, device, link, &active))
      ++(active != 0 ? gpu.links_up : gpu.links_down);
  }
  return gpu;
}

void ReadGpus(const Nvml& nvml, GpuReport* report) {
  unsigned count = 0;
  if (const int error = nvml.count(&count); error != Nvml::kSuccess) {
    report->problem = fmt::format("nvmlDeviceGetCount: {}", nvml.text(error));
    return;
  }
  for (unsigned i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    const int error = nvml.device(i, &device);
    if (error == Nvml::kNoPermission) continue;  // The GPU belongs to another container.
    if (error == Nvml::kSuccess)
      report->gpus.push_back(ReadGpu(nvml, device));
    else
      report->gpus.push_back({.problem = nvml.text(error)});
  }
  char version[96] = {};
  if (Nvml::Call(nvml.driver_version, version, unsigned{sizeof version}))
    report->driver_version = version;
}

std::string NcclVersion(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  auto* get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// ---- The JSON form, for the pipe from the child process.

std::string Encode(const GpuReport& report) {
  Json gpus = Json::array();
  for (const GpuState& gpu : report.gpus)
    gpus.push_back({{"problem", gpu.problem},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"divided", gpu.divided},
                    {"instances", gpu.instances},
                    {"uncorrected_errors", gpu.uncorrected_errors},
                    {"corrected_errors", gpu.corrected_errors},
                    {"repair_pending", gpu.repair_pending},
                    {"repair_failed", gpu.repair_failed},
                    {"throttle_reasons", gpu.throttle_reasons},
                    {"temperature", gpu.temperature},
                    {"links_up", gpu.links_up},
                    {"links_down", gpu.links_down}});
  return Dump(Json{{"problem", report.problem},
                   {"library", report.library},
                   {"driver_version", report.driver_version},
                   {"nccl_version", report.nccl_version},
                   {"gpus", gpus}});
}

absl::StatusOr<GpuReport> Decode(const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "GPUs"));
  GpuReport report;
  Json gpus = Json::array();
  JsonObject object(json, "GPUs");
  object.Read("problem", &report.problem)
      .Read("library", &report.library)
      .Read("driver_version", &report.driver_version)
      .Read("nccl_version", &report.nccl_version)
      .Read("gpus", &gpus);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  for (const Json& item : gpus) {
    GpuState& gpu = report.gpus.emplace_back();
    JsonObject one(item, "GPU");
    one.Read("problem", &gpu.problem)
        .Read("name", &gpu.name)
        .Read("uuid", &gpu.uuid)
        .Read("divided", &gpu.divided)
        .Read("instances", &gpu.instances)
        .Read("uncorrected_errors", &gpu.uncorrected_errors)
        .Read("corrected_errors", &gpu.corrected_errors)
        .Read("repair_pending", &gpu.repair_pending)
        .Read("repair_failed", &gpu.repair_failed)
        .Read("throttle_reasons", &gpu.throttle_reasons)
        .Read("temperature", &gpu.temperature)
        .Read("links_up", &gpu.links_up)
        .Read("links_down", &gpu.links_down);
    MUSTER_RETURN_IF_ERROR(one.Finish());
  }
  return report;
}

// ---- Which GPUs the job uses.

// Returns whether the job's `devices` has the CUDA device with this number.
bool Includes(const std::string& devices, size_t number) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!devices.starts_with(kPrefix)) return true;
  for (const absl::string_view entry : absl::StrSplit(devices.substr(kPrefix.size()), ',')) {
    size_t named = 0;
    if (absl::SimpleAtoi(entry, &named) && named == number) return true;
  }
  return false;
}

// Returns whether `name`, an entry of launcher::VisibleGpus, is GPU `number` or a part of it.
bool Names(const std::string& name, const GpuState& gpu, size_t number) {
  return name == std::to_string(number) ||
         (!gpu.uuid.empty() && (name == gpu.uuid || name.starts_with("MIG-" + gpu.uuid + "/"))) ||
         std::find(gpu.instances.begin(), gpu.instances.end(), name) != gpu.instances.end();
}

// Returns the numbers of the GPUs that the job uses.
absl::StatusOr<std::set<size_t>> UsedGpus(const std::vector<GpuState>& gpus,
                                          const GpuChoice& choice) {
  launcher::GpuInventory inventory;
  for (const GpuState& gpu : gpus) {
    if (!gpu.divided)
      inventory.gpus.push_back({gpu.uuid.empty() ? std::to_string(inventory.physical) : gpu.uuid});
    for (const std::string& instance : gpu.instances) inventory.gpus.push_back({instance});
    ++inventory.physical;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> visible,
                          launcher::VisibleGpus(inventory, choice.visible));
  std::set<size_t> used;
  for (size_t device = 0; device < visible.size(); ++device) {
    if (!Includes(choice.devices, device)) continue;
    for (size_t i = 0; i < gpus.size(); ++i)
      if (Names(visible[device], gpus[i], i)) used.insert(i);
  }
  return used;
}

// ---- Checks.

void JudgeGpu(const GpuState& gpu, const std::string& name, std::vector<Check>* checks) {
  const auto fail = [&](std::string what, std::string fix) {
    checks->push_back({.name = name, .ok = false, .what = std::move(what), .fix = std::move(fix)});
  };
  const auto warn = [&](std::string what, std::string fix) {
    checks->push_back(
        {.name = name, .what = std::move(what), .fix = std::move(fix), .warning = true});
  };
  constexpr std::string_view kLeaveOut =
      "leave it out (CUDA_VISIBLE_DEVICES, or the job's devices)";
  if (!gpu.problem.empty())
    fail(fmt::format("the driver cannot use it: {}", SanitizePeerText(gpu.problem, 200)),
         fmt::format("see the output of nvidia-smi, or {}", kLeaveOut));
  if (gpu.repair_failed)
    fail("its memory has defects that cannot be repaired",
         fmt::format("replace the GPU, or {}", kLeaveOut));
  if (gpu.uncorrected_errors > 0)
    fail(
        fmt::format("{} memory errors that ECC could not correct, since the driver was loaded",
                    gpu.uncorrected_errors),
        fmt::format("reset the GPU (nvidia-smi --gpu-reset) or reboot, and replace it if they come "
                    "again, or {}",
                    kLeaveOut));
  if (gpu.repair_pending && !gpu.repair_failed)
    warn("a part of its memory is to be replaced by a spare one at the next reset",
         "reset the GPU (nvidia-smi --gpu-reset) or reboot");
  for (const Reason& reason : kReasons) {
    if ((gpu.throttle_reasons & reason.bit) == 0) continue;
    warn(fmt::format("its clock is throttled: {}{}", reason.text,
                     gpu.temperature < 0 ? "" : fmt::format(", {} degrees", gpu.temperature)),
         "look at cooling and power; all members wait for the slowest GPU");
    break;  // The hardware reports several bits for one cause.
  }
  if (gpu.links_up > 0 && gpu.links_down > 0)
    warn(fmt::format("{} of {} NVLinks are down", gpu.links_down, gpu.links_up + gpu.links_down),
         "see nvidia-smi nvlink --status, and the log of the fabric manager");
}

std::string Summary(const GpuReport& report, const std::set<size_t>& used, int links) {
  std::string what = fmt::format("{}", used.size());
  if (used.size() < report.gpus.size()) what += fmt::format(" of {}", report.gpus.size());
  what += report.gpus.size() == 1 ? " GPU" : " GPUs";
  if (!used.empty()) what += fmt::format(" ({})", report.gpus[*used.begin()].name);
  return fmt::format("{}, driver {}, {} NVLinks up: no errors", what, report.driver_version, links);
}

}  // namespace

GpuReport ReadGpuHealthHere(const char* library, const char* nccl) {
  GpuReport report;
  report.nccl_version = NcclVersion(nccl);
  const std::optional<Nvml> nvml = Nvml::Load(library);
  if (!nvml) return report;
  report.library = true;
  if (const int error = nvml->init(); error != Nvml::kSuccess) {
    report.library = error != Nvml::kDriverNotLoaded;
    if (report.library) report.problem = nvml->text(error);
    return report;
  }
  ReadGpus(*nvml, &report);
  nvml->shutdown();
  return report;
}

GpuReport ReadGpuHealth() {
  const auto text =
      launcher::OutputOfChild([] { return Encode(ReadGpuHealthHere()); }, std::chrono::seconds(20));
  GpuReport report;
  report.library = true;
  if (!text.ok()) {
    report.problem = Message(text.status());
    return report;
  }
  const absl::StatusOr<GpuReport> decoded = Decode(*text);
  if (decoded.ok()) return *decoded;
  report.problem = "the process that reads it died";
  return report;
}

std::vector<Check> JudgeGpus(const GpuReport& report, const GpuChoice& choice) {
  constexpr char kName[] = "GPU health";
  if (!report.library)
    return {{.name = kName, .what = "not checked: no NVIDIA driver on this host"}};
  if (!report.problem.empty())
    return {{.name = kName,
             .ok = false,
             .what = fmt::format("the NVIDIA driver of this host does not work: {}",
                                 SanitizePeerText(report.problem, 200)),
             .fix = "see the output of nvidia-smi, or train on the CPU (--set devices=cpu)"}};
  const absl::StatusOr<std::set<size_t>> used = UsedGpus(report.gpus, choice);
  if (!used.ok())
    return {{.name = kName, .ok = false, .what = std::string(Message(used.status()))}};
  std::vector<Check> checks, others;
  int links = 0;
  for (size_t i = 0; i < report.gpus.size(); ++i) {
    const bool uses = used->contains(i);
    JudgeGpu(report.gpus[i], fmt::format("GPU {}", i), uses ? &checks : &others);
    if (uses) links += report.gpus[i].links_up;
  }
  if (checks.empty()) checks.push_back({.name = kName, .what = Summary(report, *used, links)});
  for (Check& check : others) {
    check.ok = check.warning = true;
    check.what = "not used by this job: " + check.what;
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace muster::preflight
