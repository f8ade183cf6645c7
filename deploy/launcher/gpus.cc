#include "deploy/launcher/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "common/telemetry/nvml.h"
#include "deploy/launcher/processes/child_output.h"

namespace muster::launcher {
namespace {

absl::Status DriverError(std::string_view what, std::string_view why) {
  return ConfigurationError(fmt::format(
      "the NVIDIA driver of this host does not work: {}: {}; see the output of nvidia-smi, or "
      "train on the CPU (--set devices=cpu)",
      what, why));
}

absl::Status AddGpu(const Nvml& nvml, unsigned index, GpuInventory* inventory) {
  Nvml::Device device = nullptr;
  if (const int error = nvml.device(index, &device); error != Nvml::kSuccess) {
    // The GPU belongs to another container.
    if (error == Nvml::kNoPermission) return absl::OkStatus();
    return DriverError(fmt::format("GPU {}", index), nvml.text(error));
  }
  ++inventory->physical;
  if (const auto instances = nvml.InstancesOf(device)) {
    for (const std::string& instance : *instances) inventory->gpus.push_back({instance});
    return absl::OkStatus();
  }
  char uuid[128] = {};
  if (const int error = nvml.uuid(device, uuid, sizeof uuid); error != Nvml::kSuccess)
    return DriverError(fmt::format("GPU {}", index), nvml.text(error));
  inventory->gpus.push_back({uuid});
  return absl::OkStatus();
}

absl::StatusOr<GpuInventory> Ask(const Nvml& nvml) {
  if (const int error = nvml.init(); error != Nvml::kSuccess) {
    if (error == Nvml::kDriverNotLoaded) return GpuInventory();
    return DriverError("nvmlInit", nvml.text(error));
  }
  GpuInventory inventory;
  absl::Status status;
  unsigned count = 0;
  if (const int error = nvml.count(&count); error != Nvml::kSuccess)
    status = DriverError("nvmlDeviceGetCount", nvml.text(error));
  for (unsigned i = 0; i < count && status.ok(); ++i) status = AddGpu(nvml, i, &inventory);
  nvml.shutdown();
  if (!status.ok()) return status;
  return inventory;
}

// ---- The format of the pipe: one line per GPU, "physical N", or "error TEXT".

std::string Encode(const absl::StatusOr<GpuInventory>& inventory) {
  if (!inventory.ok()) return fmt::format("error {}\n", Message(inventory.status()));
  std::string text = fmt::format("physical {}\n", inventory->physical);
  for (const GpuInventory::Gpu& gpu : inventory->gpus) text += fmt::format("gpu {}\n", gpu.id);
  return text + "end\n";
}

absl::StatusOr<GpuInventory> Decode(std::string_view text) {
  GpuInventory inventory;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    const std::string value(line.substr(std::min(line.find(' '), line.size() - 1) + 1));
    if (line == "end") return inventory;
    if (line.starts_with("error ")) return ConfigurationError(value);
    if (line.starts_with("physical ")) inventory.physical = std::atoi(value.c_str());
    if (line.starts_with("gpu ")) inventory.gpus.push_back({value});
  }
  return DriverError("reading the list of GPUs", "the process that reads it died");
}

// ---- CUDA_VISIBLE_DEVICES

std::string Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// Returns the index if the whole text is a number, otherwise nullopt.
std::optional<int> IndexIn(const std::string& text) {
  int index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

// Returns the GPU that `entry` names, or an error if no GPU or several match.
absl::StatusOr<std::string> GpuNamed(const GpuInventory& inventory, const std::string& variable,
                                     const std::string& entry) {
  if (const auto index = IndexIn(entry)) {
    if (*index < inventory.physical) return std::to_string(*index);
    return ConfigurationError(fmt::format(
        "CUDA_VISIBLE_DEVICES is \"{}\", but this host has {} GPU(s): there is no GPU {}", variable,
        inventory.physical, entry));
  }
  std::vector<std::string> found;
  for (const GpuInventory::Gpu& gpu : inventory.gpus)
    if (gpu.id.starts_with(entry)) found.push_back(gpu.id);
  if (found.size() == 1) return found[0];
  // The older form of an instance, MIG-GPU-<uuid>/<gpu instance>/<compute instance>, is not listed.
  // If the GPUs were only counted, no uuid is known.
  const bool listed = std::any_of(inventory.gpus.begin(), inventory.gpus.end(),
                                  [](const auto& gpu) { return !IndexIn(gpu.id); });
  if (found.empty() && (!listed || entry.starts_with("MIG-GPU-"))) return entry;
  return ConfigurationError(fmt::format("CUDA_VISIBLE_DEVICES is \"{}\", but {} of this host is {}",
                                        variable, found.empty() ? "no GPU" : "more than one GPU",
                                        entry));
}

std::string NamesOf(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

int GpusNeeded(const std::string& devices) {
  if (!devices.starts_with("cuda")) return 0;
  int needed = 1;
  for (size_t at = devices.find(':'); at != std::string::npos; at = devices.find(',', at + 1))
    needed = std::max(needed, std::atoi(devices.c_str() + at + 1) + 1);
  return needed;
}

absl::StatusOr<GpuInventory> ReadGpusHere(const char* library, const char* folder) {
  if (const std::optional<Nvml> nvml = Nvml::Load(library)) return Ask(*nvml);
  GpuInventory inventory;
  std::error_code error;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder, error))
    inventory.gpus.push_back({std::to_string(inventory.physical++)});
  return inventory;
}

absl::StatusOr<GpuInventory> ReadGpus() {
  const auto text = OutputOfChild([] { return Encode(ReadGpusHere()); }, std::chrono::seconds(20));
  if (!text.ok()) return DriverError("reading the list of GPUs", Message(text.status()));
  return Decode(*text);
}

absl::StatusOr<std::vector<std::string>> VisibleGpus(const GpuInventory& inventory,
                                                     const std::optional<std::string>& variable) {
  std::vector<std::string> visible;
  if (!variable) {
    for (const GpuInventory::Gpu& gpu : inventory.gpus) visible.push_back(gpu.id);
    return visible;
  }
  std::set<std::string> seen;
  for (std::string_view rest = *variable; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string entry = Trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto index = IndexIn(entry);
    const bool named = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!named && (!index || *index < 0)) break;  // CUDA ends the list here: "-1", "none".
    MUSTER_ASSIGN_OR_RETURN(const std::string gpu, GpuNamed(inventory, *variable, entry));
    if (!seen.insert(gpu).second) {
      return ConfigurationError(
          fmt::format("CUDA_VISIBLE_DEVICES is \"{}\": it names GPU {} twice", *variable, entry));
    }
    visible.push_back(gpu);
  }
  return visible;
}

absl::StatusOr<GpuPlan> AssignGpus(const std::vector<std::string>& gpus,
                                   const std::vector<PlannedTask>& tasks, const GpuUse& use) {
  GpuPlan plan;
  plan.visible.resize(tasks.size());
  if (gpus.empty() || use.devices.starts_with("cpu")) return plan;
  std::vector<size_t> members;
  std::vector<std::string> names;
  for (size_t i = 0; i < tasks.size(); ++i) {
    plan.visible[i] = "";
    const bool trains =
        tasks[i].type == TaskType::kWorker || (tasks[i].type == TaskType::kChief && !use.servers);
    if (!trains) continue;
    members.push_back(i);
    names.push_back(tasks[i].Name());
  }
  const size_t per_member = members.empty() ? 0 : gpus.size() / members.size();
  const auto needed = static_cast<size_t>(std::max(1, GpusNeeded(use.devices)));
  if (per_member < needed) {
    const std::string short_of =
        fmt::format("{} GPU{} for {} member{} ({})", gpus.size(), gpus.size() == 1 ? "" : "s",
                    members.size(), members.size() == 1 ? "" : "s", NamesOf(names));
    if (use.devices != "auto") {
      return ConfigurationError(
          fmt::format("devices is \"{}\", which takes {} of each member, but there {} {}: start "
                      "fewer workers, or set devices to cpu",
                      use.devices, needed, gpus.size() == 1 ? "is" : "are", short_of));
    }
    plan.note =
        short_of + ": all of them train on the CPU; --workers auto starts one member for each GPU";
    return plan;
  }
  std::vector<std::string> shares;
  for (size_t m = 0, at = 0; m < members.size(); ++m) {
    const size_t fair = per_member + (m < gpus.size() % members.size() ? 1 : 0);
    const size_t count = use.servers || use.one_device ? 1 : fair;
    plan.visible[members[m]] =
        fmt::format("{}", fmt::join(gpus.begin() + static_cast<ptrdiff_t>(at),
                                    gpus.begin() + static_cast<ptrdiff_t>(at + count), ","));
    shares.push_back(fmt::format("{} has {}", names[m], *plan.visible[members[m]]));
    at += count;
  }
  plan.note = "GPUs: " + NamesOf(shares);
  return plan;
}

int WorkersFor(int gpus, const ClusterSize& size) {
  const bool chief_trains = size.chief && size.ps == 0;
  if (gpus == 0) return 1;
  return chief_trains ? gpus - 1 : gpus;
}

}  // namespace muster::launcher
