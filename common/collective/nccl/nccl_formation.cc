// Forms the NCCL communicators of a process. Has the functions that the NCCL module exports
// (nccl.h).
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "common/base/logging.h"
#include "common/collective/group/formation.h"
#include "common/collective/nccl/cuda_streams.h"
#include "common/collective/nccl/nccl.h"
#include "common/collective/nccl/nccl_backend.h"
#include "common/collective/operation.h"

namespace muster::collective {
namespace {

// The deadline of a whole formation. It also passes if the formation is aborted.
struct Limit {
  const std::function<bool()>& aborted;
  Duration timeout;
  MonotonicTime deadline;

  absl::Status Check(const std::function<std::string()>& waited_for) const {
    if (aborted && aborted()) return Superseded("The formation was given up.");
    if (Clock::now() <= deadline) return absl::OkStatus();
    return DeadlinePassed(fmt::format("{} within {:.3g} s.", waited_for(), Seconds(timeout)));
  }
};

// A thread that aborts `group` when the limit is reached. Waits for other ranks then return.
class Watch {
 public:
  Watch(Communicator* group, const Limit& limit, std::string waited_for)
      : thread_([=, this] {
          std::unique_lock lock(mutex_);
          while (!done_) {
            lock.unlock();
            const absl::Status status = limit.Check([&] { return waited_for; });
            if (!status.ok()) return group->Abort(status);
            lock.lock();
            wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return done_; });
          }
        }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;  // Last member, because it uses the others.
};

// The communicators of this process during their formation. The destructor aborts those that still
// belong to this object.
struct Comms {
  std::vector<NcclDevice> list;
  ~Comms() { Abort(); }
  void Abort() {
    for (NcclDevice& device : list) {
      if (device.comm != nullptr) ncclCommAbort(std::exchange(device.comm, nullptr));
    }
  }
};

absl::Status CheckDevices(const std::vector<int>& devices, int expected) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  if (static_cast<int>(devices.size()) != expected) {
    return ConfigurationError(
        fmt::format("{} CUDA devices were given for {} replicas.", devices.size(), expected));
  }
  for (const int device : devices) {
    if (device >= 0 && device < count) continue;
    return ConfigurationError(
        fmt::format("There is no device cuda:{}: this process sees {}.", device, count));
  }
  return absl::OkStatus();
}

absl::StatusOr<ncclUniqueId> ShareUniqueId(Communicator& group, const Limit& limit) {
  ncclUniqueId id{};
  if (group.rank() == 0) {
    if (const ncclResult_t r = ncclGetUniqueId(&id); r != ncclSuccess) {
      const absl::Status why = NcclError("making a unique id", r, nullptr);
      group.Abort(why);
      return why;
    }
  }
  const std::string first = RankName(group.labels(), 0);
  const Watch watch(&group, limit, fmt::format("{} gave no unique id of NCCL", first));
  MUSTER_RETURN_IF_ERROR(group.Broadcast({&id, sizeof id, DataType::kByte}, 0)->Wait());
  return id;
}

// Waits until the last call on `comm` has left ncclInProgress.
absl::Status Await(ncclComm_t comm, ncclResult_t result, std::string_view what, const Limit& limit,
                   int total) {
  const MonotonicTime start = Clock::now();
  while (result == ncclSuccess || result == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess) return absl::OkStatus();
    if (result != ncclInProgress) break;
    MUSTER_RETURN_IF_ERROR(limit.Check(
        [&] { return fmt::format("NCCL did not come through with {} of {} ranks", what, total); }));
    Pause(start);
  }
  return NcclError(what, result, comm);
}

absl::Status InitAll(Comms& comms, const ncclUniqueId& id, int first, int total,
                     const Limit& limit) {
  if (std::getenv("NCCL_COMM_BLOCKING") != nullptr) {
    LogWarning(
        "NCCL_COMM_BLOCKING is set, and NCCL may block in calls that an abort cannot end: unset "
        "it");
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // If communicators shared resources, one abort could break several.
  ncclResult_t result = ncclGroupStart();
  for (size_t i = 0; i < comms.list.size() && result == ncclSuccess; ++i) {
    const DeviceScope scope(comms.list[i].device);
    const ncclResult_t r = ncclCommInitRankConfig(&comms.list[i].comm, total, id,
                                                  first + static_cast<int>(i), &config);
    if (r != ncclInProgress) result = r;
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (result == ncclSuccess) result = ended;
  for (const NcclDevice& device : comms.list) {
    if (device.comm == nullptr) return NcclError("the connection", result, nullptr);
    MUSTER_RETURN_IF_ERROR(Await(device.comm, result, "the connection", limit, total));
  }
  return absl::OkStatus();
}

// For each device, one float in its memory and an event on its stream.
struct Probe {
  explicit Probe(const NcclDevice& device) : device(device) {}
  ~Probe() {
    const DeviceScope scope(device.device);
    if (event != nullptr) cudaEventDestroy(event);
    if (value != nullptr) cudaFree(value);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  absl::Status Prepare() {
    constexpr float kOne = 1;
    const DeviceScope scope(device.device);
    cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&value), sizeof kOne);
    if (error == cudaSuccess) error = cudaMemcpy(value, &kOne, sizeof kOne, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    return error == cudaSuccess ? absl::OkStatus() : CudaError("preparing a reduction", error);
  }
  absl::Status Record() const {
    const DeviceScope scope(device.device);
    const cudaError_t error = cudaEventRecord(event, device.stream);
    return error == cudaSuccess ? absl::OkStatus() : CudaError("recording an event", error);
  }

  const NcclDevice& device;
  float* value = nullptr;
  cudaEvent_t event = nullptr;
};

absl::Status AwaitSum(const Probe& probe, const Limit& limit, int total) {
  const MonotonicTime start = Clock::now();
  cudaError_t error;
  while ((error = cudaEventQuery(probe.event)) == cudaErrorNotReady) {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(probe.device.comm, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclSuccess && result != ncclInProgress)
      return NcclError("the first reduction", result, probe.device.comm);
    MUSTER_RETURN_IF_ERROR(limit.Check(
        [&] { return fmt::format("The first reduction of {} ranks did not end", total); }));
    Pause(start);
  }
  if (error != cudaSuccess) return CudaError("the first reduction", error);
  float sum = 0;
  const DeviceScope scope(probe.device.device);
  error = cudaMemcpy(&sum, probe.value, sizeof sum, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return CudaError("the first reduction", error);
  if (sum == static_cast<float>(total)) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("NCCL adds up 1 over {} ranks to {:g} on cuda:{}: the links between its GPUs "
                  "corrupt data; try NCCL_P2P_DISABLE=1, and see NCCL's page on ACS and the IOMMU.",
                  total, sum, probe.device.device));
}

// Runs a first reduction, because NCCL opens most of its connections in the first operation. They
// are thus opened before a step needs them, within the deadline of the formation.
absl::Status WarmUp(Comms& comms, const Limit& limit, int total) {
  std::vector<std::unique_ptr<Probe>> probes;
  for (const NcclDevice& device : comms.list) {
    probes.push_back(std::make_unique<Probe>(device));
    MUSTER_RETURN_IF_ERROR(probes.back()->Prepare());
  }
  ncclResult_t result = ncclGroupStart();
  for (const auto& probe : probes) {
    if (result != ncclSuccess && result != ncclInProgress) break;
    result = ncclAllReduce(probe->value, probe->value, 1, ncclFloat32, ncclSum, probe->device.comm,
                           probe->device.stream);
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (result == ncclSuccess) result = ended;
  absl::Status status;
  for (const auto& probe : probes) {
    if (status.ok())
      status = Await(probe->device.comm, result, "the first reduction", limit, total);
    if (status.ok()) status = probe->Record();
  }
  for (const auto& probe : probes)
    if (status.ok()) status = AwaitSum(*probe, limit, total);
  // Aborts before the memory is freed, because freeing waits for the device.
  if (!status.ok()) comms.Abort();
  return status;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Make(NcclRequest& request) {
  const std::vector<int>& per_rank = request.replicas_per_rank;
  const NcclOptions& options = request.options;
  const Limit limit{request.aborted, options.formation_timeout,
                    Clock::now() + options.formation_timeout};
  const int rank = request.group->rank();
  // The recorder receives the operations of the devices, not the comparisons on the host.
  const NcclRecords records = {request.group->TakeRecorder(), options.traffic};
  MUSTER_RETURN_IF_ERROR(CheckDevices(options.devices, per_rank[rank]));
  request.group->set_timeout(options.formation_timeout + std::chrono::seconds(1));
  MUSTER_ASSIGN_OR_RETURN(const ncclUniqueId id, ShareUniqueId(*request.group, limit));
  request.group->set_timeout(options.timeout);
  const int first = std::accumulate(per_rank.begin(), per_rank.begin() + rank, 0);
  const int total = std::accumulate(per_rank.begin(), per_rank.end(), 0);
  Comms comms;
  for (const int device : options.devices)
    comms.list.push_back({device, PoolStream(device), nullptr});
  MUSTER_RETURN_IF_ERROR(InitAll(comms, id, first, total, limit));
  MUSTER_RETURN_IF_ERROR(WarmUp(comms, limit, total));
  auto shadows = MakeReplicaCommunicators(std::move(request.group), per_rank, options.timeout);
  std::vector<std::unique_ptr<Communicator>> result;
  for (size_t i = 0; i < shadows.size(); ++i) {
    NcclDevice& device = comms.list[i];
    result.push_back(MakeNcclCommunicator(std::move(shadows[i]), device, options.timeout, records));
    device.comm = nullptr;
  }
  return result;
}

absl::StatusOr<std::vector<std::string>> Uuids(const std::vector<int>& devices) {
  std::vector<std::string> uuids;
  for (const int device : devices) {
    cudaDeviceProp properties;
    if (const cudaError_t e = cudaGetDeviceProperties(&properties, device); e != cudaSuccess)
      return CudaError(fmt::format("reading the properties of cuda:{}", device), e);
    std::string uuid = "GPU";
    for (int i = 0; i < 16; ++i) {
      if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
      uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
    }
    uuids.push_back(uuid);
  }
  return uuids;
}

}  // namespace
}  // namespace muster::collective

// These functions catch LibTorch's exceptions, which must not leave the module.
extern "C" __attribute__((visibility("default"))) void MusterMakeNcclCommunicators(
    muster::collective::NcclRequest* request) {
  try {
    request->result = muster::collective::Make(*request);
  } catch (const std::exception& e) {
    request->result = muster::ProgramError(fmt::format("CUDA: {}", e.what()));
  }
}

extern "C" __attribute__((visibility("default"))) void MusterCudaUuids(
    muster::collective::CudaUuidsRequest* request) {
  try {
    request->result = muster::collective::Uuids(request->devices);
  } catch (const std::exception& e) {
    request->result = muster::ProgramError(fmt::format("CUDA: {}", e.what()));
  }
}
