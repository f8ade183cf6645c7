// The module behind nccl.h.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/collective/engine.h"
#include "common/collective/failed_work.h"
#include "common/collective/formation.h"
#include "common/collective/nccl.h"

namespace muster {
namespace {

using collective::Signature;
using collective::Verb;

constexpr Duration kDrainFor = std::chrono::seconds(10);
constexpr Duration kBusyFor = std::chrono::microseconds(200);  // then sleep between looks

absl::Status CudaError(const char* what, cudaError_t error) {
  return ProgramError(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
}
absl::Status NcclError(const char* what, ncclResult_t result) {
  return PeerLost(fmt::format("NCCL: {}: {}", what, ncclGetErrorString(result)));
}

// Between two looks at something that another thread or device changes.
void Pause(MonotonicTime since) {
  if (Clock::now() - since < kBusyFor) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBFloat16:
      return ncclBfloat16;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kByte:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMean:
      return ncclAvg;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kSum:
      break;
  }
  return ncclSum;
}

class NcclCommunicator;

class NcclWork : public Work {
 public:
  NcclWork(NcclCommunicator* owner, Signature signature) : owner(owner), signature(signature) {}
  ~NcclWork() override {
    if (event != nullptr) cudaEventDestroy(event);
  }
  absl::Status Wait() override;
  bool Done() const override { return done.load() || cudaEventQuery(event) != cudaErrorNotReady; }

  NcclCommunicator* const owner;
  const Signature signature;
  std::vector<Signature> everybodys;  // filled by `comparison`
  WorkPtr comparison;
  cudaEvent_t event = nullptr;
  MonotonicTime deadline{};
  std::atomic<bool> done{false};
  absl::Status status;
};

class NcclCommunicator : public Communicator {
 public:
  // `shadow`: the same ranks on the host.
  NcclCommunicator(std::unique_ptr<Communicator> shadow, ncclComm_t comm, int device,
                   Duration timeout, std::shared_ptr<FlightRecorder> recorder)
      : shadow_(std::move(shadow)),
        recorder_(std::move(recorder)),
        device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device)),
        comm_(comm),
        timeout_(timeout) {}
  ~NcclCommunicator() override { Abort(Superseded("The communicator was destroyed.")); }

  int rank() const override { return shadow_->rank(); }
  int size() const override { return shadow_->size(); }
  std::string Describe() const override {
    return fmt::format("NCCL on cuda:{}, {} ranks, beside {}", device_, size(),
                       shadow_->Describe());
  }

  WorkPtr AllReduce(Buffer buffer, ReduceOp op) override {
    const Signature s{
        .count = buffer.count, .verb = Verb::kAllReduce, .type = buffer.type, .op = op};
    return Issue(s, CheckReduction(buffer), [=](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(buffer.data, buffer.data, buffer.count, TypeOf(buffer.type), OpOf(op),
                           comm, stream);
    });
  }
  WorkPtr Broadcast(Buffer buffer, int root) override {
    const Signature s{
        .count = buffer.count, .root = root, .verb = Verb::kBroadcast, .type = buffer.type};
    absl::Status valid;
    if (root < 0 || root >= size()) {
      valid = ProgramError(fmt::format("broadcast from rank {} in a group of {}", root, size()));
    }
    return Issue(s, valid, [=](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(buffer.data, buffer.data, buffer.count, TypeOf(buffer.type), root, comm,
                           stream);
    });
  }
  WorkPtr AllGather(Buffer send, Buffer receive) override {
    const Signature s{.count = send.count, .verb = Verb::kAllGather, .type = send.type};
    return Issue(s, CheckSizes(send, receive, send.count * size() == receive.count),
                 [=](ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllGather(send.data, receive.data, send.count, TypeOf(send.type),
                                        comm, stream);
                 });
  }
  WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) override {
    const Signature s{
        .count = receive.count, .verb = Verb::kReduceScatter, .type = receive.type, .op = op};
    absl::Status valid = CheckReduction(receive);
    if (valid.ok()) valid = CheckSizes(send, receive, receive.count * size() == send.count);
    return Issue(s, valid, [=](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(send.data, receive.data, receive.count, TypeOf(receive.type),
                               OpOf(op), comm, stream);
    });
  }
  WorkPtr Barrier() override {
    return Issue({}, absl::OkStatus(), [](ncclComm_t, cudaStream_t) { return ncclSuccess; });
  }

  void Abort(absl::Status why) override {
    Poison(why);
    // Wakes whoever waits in the comparison, here and on the other ranks.
    shadow_->Abort(why);
    {
      absl::MutexLock lock(&mutex_);
      // Frees what NCCL holds and ends its kernels; never destroyed in the ordinary way, which
      // could wait for peers that are gone.
      if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    }
    const MonotonicTime start = Clock::now();
    while (cudaStreamQuery(stream_.stream()) == cudaErrorNotReady) {
      if (Clock::now() - start > kDrainFor) {
        LogWarning("The NCCL stream of cuda:{} has not drained after an abort.", device_);
        return;
      }
      Pause(start);
    }
  }

  absl::Status status() const override {
    absl::MutexLock lock(&mutex_);
    return poison_;
  }
  void set_timeout(Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    timeout_ = timeout;
    shadow_->set_timeout(timeout);
  }

  absl::Status Finish(NcclWork& work) {
    absl::Status result = Compare(work);
    if (result.ok()) result = WaitForDevice(work);
    if (!result.ok()) {
      Poison(result);
      Abort(result);
    }
    // Read after the event: what an abort has cut short has completed too, but the poison was
    // there before it.
    result = status();
    if (recorder_ != nullptr)
      recorder_->Ends(collective::CallOf(work.signature, rank()), Message(result));
    return result;
  }

 private:
  absl::Status CheckReduction(const Buffer& buffer) const {
    return buffer.type == DataType::kByte ? ProgramError("Bytes cannot be reduced.")
                                          : absl::OkStatus();
  }
  absl::Status CheckSizes(const Buffer& send, const Buffer& receive, bool fit) const {
    if (fit && send.type == receive.type) return absl::OkStatus();
    return ProgramError(fmt::format("{} x {} sent and {} x {} received do not fit {} ranks.",
                                    DataTypeName(send.type), send.count, DataTypeName(receive.type),
                                    receive.count, size()));
  }

  template <typename Enqueue>
  WorkPtr Issue(Signature signature, const absl::Status& valid, Enqueue enqueue) {
    if (const absl::Status poison = status(); !poison.ok()) {
      return std::make_shared<FailedWork>(poison);
    }
    signature.sequence = ++sequence_;
    auto work = std::make_shared<NcclWork>(this, signature);
    if (recorder_ != nullptr) recorder_->Starts(collective::CallOf(signature, rank()));
    absl::Status started = valid;
    if (started.ok()) started = Start(*work, enqueue);
    if (!started.ok()) {
      Abort(started);
      return std::make_shared<FailedWork>(status());
    }
    work->everybodys.resize(size());
    work->comparison = shadow_->AllGather(
        {const_cast<Signature*>(&work->signature), sizeof(Signature), DataType::kByte},
        {work->everybodys.data(), static_cast<int64_t>(sizeof(Signature)) * size(),
         DataType::kByte});
    return work;
  }

  template <typename Enqueue>
  absl::Status Start(NcclWork& work, Enqueue enqueue) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    if (auto e = cudaEventCreateWithFlags(&work.event, cudaEventDisableTiming); e != cudaSuccess) {
      return CudaError("creating an event", e);
    }
    // Behind what the caller has enqueued, ahead of nothing of the caller's.
    const cudaStream_t caller = c10::cuda::getCurrentCUDAStream(device_).stream();
    cudaError_t error = cudaEventRecord(work.event, caller);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_.stream(), work.event, 0);
    if (error != cudaSuccess) return CudaError("waiting for the caller's stream", error);
    MUSTER_RETURN_IF_ERROR(Enqueued(enqueue));
    error = cudaEventRecord(work.event, stream_.stream());
    if (error != cudaSuccess) return CudaError("recording an event", error);
    absl::MutexLock lock(&mutex_);
    work.deadline = Clock::now() + timeout_;
    return absl::OkStatus();
  }

  // Nothing else may be called before a non-blocking call has left ncclInProgress.
  template <typename Enqueue>
  absl::Status Enqueued(Enqueue enqueue) {
    const MonotonicTime start = Clock::now();
    ncclResult_t result;
    {
      absl::MutexLock lock(&mutex_);
      if (comm_ == nullptr) return poison_;
      result = enqueue(comm_, stream_.stream());
    }
    while (result == ncclInProgress) {
      Pause(start);
      absl::MutexLock lock(&mutex_);
      if (comm_ == nullptr) return poison_;
      if (Clock::now() - start > timeout_) {
        return DeadlinePassed("NCCL did not take an operation in time.");
      }
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    return result == ncclSuccess ? absl::OkStatus() : NcclError("enqueuing", result);
  }

  absl::Status Compare(NcclWork& work) {
    MUSTER_RETURN_IF_ERROR(work.comparison->Wait());
    const std::vector<std::string> labels = collective::LabelsOf(*shadow_);
    for (int r = 1; r < size(); ++r) {
      if (work.everybodys[r] == work.everybodys[0]) continue;
      return collective::MismatchError(collective::RankName(labels, 0), work.everybodys[0],
                                       collective::RankName(labels, r), work.everybodys[r]);
    }
    return absl::OkStatus();
  }

  absl::Status WaitForDevice(NcclWork& work) {
    const MonotonicTime start = Clock::now();
    for (;;) {
      const cudaError_t event = cudaEventQuery(work.event);
      {
        absl::MutexLock lock(&mutex_);
        if (!poison_.ok()) return poison_;
        ncclResult_t result = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclSuccess && result != ncclInProgress) {
          return NcclError(work.signature.Text().c_str(), result);
        }
      }
      if (event == cudaSuccess) return absl::OkStatus();
      if (event != cudaErrorNotReady) return CudaError("an operation failed", event);
      if (Clock::now() > work.deadline) {
        return DeadlinePassed(
            fmt::format("All ranks came to {} (operation {}), but the devices did not finish it.",
                        work.signature.Text(), work.signature.sequence));
      }
      Pause(start);
    }
  }

  void Poison(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (poison_.ok()) poison_ = why.ok() ? Superseded("The communicator was aborted.") : why;
  }

  const std::unique_ptr<Communicator> shadow_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const int device_;
  const c10::cuda::CUDAStream stream_;
  uint64_t sequence_ = 0;  // issuing is for one thread at a time
  mutable absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_);
  absl::Status poison_ ABSL_GUARDED_BY(mutex_);
  Duration timeout_ ABSL_GUARDED_BY(mutex_);
};

absl::Status NcclWork::Wait() {
  if (!done.load()) {
    status = owner->Finish(*this);
    done.store(true);
  }
  return status;
}

// The communicators of this process under construction; aborts them unless handed over.
struct Comms {
  std::vector<ncclComm_t> list;
  ~Comms() {
    for (const ncclComm_t comm : list) {
      if (comm != nullptr) ncclCommAbort(comm);
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

absl::StatusOr<ncclUniqueId> ShareUniqueId(Communicator& group) {
  ncclUniqueId id{};
  if (group.rank() == 0) {
    if (const ncclResult_t r = ncclGetUniqueId(&id); r != ncclSuccess) {
      const absl::Status why = NcclError("making a unique id", r);
      group.Abort(why);
      return why;
    }
  }
  MUSTER_RETURN_IF_ERROR(group.Broadcast({&id, sizeof id, DataType::kByte}, 0)->Wait());
  return id;
}

absl::Status InitAll(Comms& comms, const ncclUniqueId& id, int first, int total,
                     const NcclOptions& options, const std::function<bool()>& aborted) {
  if (std::getenv("NCCL_COMM_BLOCKING") != nullptr) {
    LogWarning("NCCL_COMM_BLOCKING is set: NCCL may block where it could be aborted. Unset it.");
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // else one abort could ruin a family of communicators
  comms.list.resize(options.devices.size(), nullptr);
  ncclResult_t result = ncclGroupStart();
  for (size_t i = 0; i < options.devices.size() && result == ncclSuccess; ++i) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options.devices[i]));
    const ncclResult_t r =
        ncclCommInitRankConfig(&comms.list[i], total, id, first + static_cast<int>(i), &config);
    if (r != ncclInProgress) result = r;
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (result == ncclSuccess) result = ended;
  const MonotonicTime start = Clock::now();
  for (const ncclComm_t comm : comms.list) {
    if (result != ncclSuccess && result != ncclInProgress) break;
    do {
      const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
      if (asked != ncclSuccess) result = asked;
      if (result != ncclInProgress) break;
      if (aborted && aborted()) return Superseded("The formation was given up.");
      if (Clock::now() - start > options.formation_timeout) {
        return DeadlinePassed(fmt::format("NCCL did not connect {} ranks within {:.3g} s.", total,
                                          Seconds(options.formation_timeout)));
      }
      Pause(start);
    } while (true);
  }
  return result == ncclSuccess ? absl::OkStatus() : NcclError("connecting the ranks", result);
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Make(NcclRequest& request) {
  const std::vector<int>& per_rank = request.replicas_per_rank;
  const NcclOptions& options = request.options;
  const int rank = request.group->rank();
  // What is recorded is the devices' operations, not the comparisons beside them.
  const auto recorder = collective::TakeRecorder(*request.group);
  MUSTER_RETURN_IF_ERROR(CheckDevices(options.devices, per_rank[rank]));
  MUSTER_ASSIGN_OR_RETURN(const ncclUniqueId id, ShareUniqueId(*request.group));
  const int first = std::accumulate(per_rank.begin(), per_rank.begin() + rank, 0);
  const int total = std::accumulate(per_rank.begin(), per_rank.end(), 0);
  Comms comms;
  MUSTER_RETURN_IF_ERROR(InitAll(comms, id, first, total, options, request.aborted));
  auto shadows = MakeReplicaCommunicators(std::move(request.group), per_rank, options.timeout);
  std::vector<std::unique_ptr<Communicator>> result;
  for (size_t i = 0; i < shadows.size(); ++i) {
    result.push_back(std::make_unique<NcclCommunicator>(
        std::move(shadows[i]), std::exchange(comms.list[i], nullptr), options.devices[i],
        options.timeout, recorder));
  }
  return result;
}

}  // namespace
}  // namespace muster

extern "C" __attribute__((visibility("default"))) void MusterMakeNcclCommunicators(
    muster::NcclRequest* request) {
  try {  // LibTorch's exceptions end here
    request->result = muster::Make(*request);
  } catch (const std::exception& e) {
    request->result = muster::ProgramError(fmt::format("CUDA: {}", e.what()));
  }
}
