#include "common/collective/nccl/nccl_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/collective/engines/engine.h"
#include "common/collective/failed_work.h"
#include "common/collective/group/formation.h"
#include "common/collective/nccl/cuda_streams.h"
#include "common/collective/operation_spans.h"

namespace muster::collective {
namespace {
constexpr Duration kDrainFor = std::chrono::seconds(10);
constexpr Duration kFinalizeFor = std::chrono::seconds(5);
// Pause only yields for this time after the first poll. Later it sleeps.
constexpr Duration kBusyFor = std::chrono::microseconds(200);
}  // namespace

absl::Status CudaError(std::string_view what, cudaError_t error) {
  return FaultStatus(FaultOfCuda(error),
                     fmt::format("CUDA: {}: {} (error {})", what, cudaGetErrorString(error),
                                 static_cast<int>(error)));
}

absl::Status NcclError(std::string_view what, ncclResult_t result, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  const std::string_view more = last == nullptr ? "" : last;
  FaultCause kind = FaultOfNccl(result, more);
  // Reports the CUDA error that caused NCCL's error, if it can still be read.
  const cudaError_t cuda = result == ncclUnhandledCudaError ? cudaPeekAtLastError() : cudaSuccess;
  if (cuda != cudaSuccess && FaultOfCuda(cuda) != FaultCause::kNone) kind = FaultOfCuda(cuda);
  return FaultStatus(
      kind, fmt::format("NCCL: {}: {}{}{}{}{}", what, ncclGetErrorString(result),
                        cuda == cudaSuccess ? "" : ", ",
                        cuda == cudaSuccess ? "" : cudaGetErrorString(cuda),
                        more.empty() ? "" : ": ", more.substr(0, more.find_last_not_of("\n") + 1)));
}

void Pause(MonotonicTime since) {
  if (Clock::now() - since < kBusyFor) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

namespace {

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
  std::vector<Signature> everybodys;  // The signatures of all ranks. `comparison` fills it.
  WorkPtr comparison;
  cudaEvent_t event = nullptr;
  MonotonicTime deadline{};
  // For the span: from the call to the time at which the host saw the end.
  const MonotonicTime begin = Clock::now();
  const collective::OperationLabel label;
  uint64_t span = 0;  // Of OperationSpans::Open.
  std::atomic<bool> done{false};
  absl::Status status;
};

class NcclCommunicator : public Communicator {
 public:
  // MakeNcclCommunicator describes the arguments.
  NcclCommunicator(std::unique_ptr<Communicator> shadow, const NcclDevice& device, Duration timeout,
                   const NcclRecords& records)
      : shadow_(std::move(shadow)),
        recorder_(records.recorder),
        traffic_(records.traffic),
        spans_(shadow_->rank()),
        device_(device.device),
        stream_(device.stream),
        comm_(device.comm),
        timeout_(timeout) {}
  ~NcclCommunicator() override {
    Finalize();
    // Other ranks may be in an operation. They must regard this rank as lost.
    Abort(PeerLost(fmt::format("rank {} has left the group.", rank())));
  }

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
    // Wakes threads that wait in a comparison, here and on other ranks. The other ranks get
    // PeerLost instead of a process fault.
    shadow_->Abort(IsProcessFault(why) ? PeerLost(Message(why)) : why);
    {
      absl::MutexLock lock(&mutex_);
      // ncclCommAbort frees NCCL's resources and ends its kernels.
      if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    }
    const MonotonicTime start = Clock::now();
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
      if (Clock::now() - start > kDrainFor) {
        LogWarning("the NCCL stream of cuda:{} still has work after an abort", device_);
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
    // Read after the event. An operation that was aborted completes its event too, but the
    // communicator was poisoned before.
    result = status();
    const CollectiveCall call = CallOf(work.signature, rank());
    if (recorder_ != nullptr) recorder_->Ends(call, Message(result));
    spans_.Add(work.label, call, work.begin, work.span);
    if (result.ok() && traffic_ != nullptr) {
      const Bytes bytes = TrafficOf(work.signature, rank(), size());
      traffic_->Add(bytes.sent, bytes.received);
    }
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
    const CollectiveCall call = CallOf(signature, rank());
    if (recorder_ != nullptr) recorder_->Starts(call);
    absl::Status started = valid;
    if (started.ok()) started = Start(*work, enqueue);
    if (!started.ok()) {
      Abort(started);
      return std::make_shared<FailedWork>(status());
    }
    work->span = spans_.Open(work->label, call, work->begin);
    work->everybodys.resize(size());
    work->comparison = shadow_->AllGather(
        {const_cast<Signature*>(&work->signature), sizeof(Signature), DataType::kByte},
        {work->everybodys.data(), static_cast<int64_t>(sizeof(Signature)) * size(),
         DataType::kByte});
    return work;
  }

  template <typename Enqueue>
  absl::Status Start(NcclWork& work, Enqueue enqueue) {
    const DeviceScope scope(device_);
    if (auto e = cudaEventCreateWithFlags(&work.event, cudaEventDisableTiming); e != cudaSuccess) {
      return CudaError("creating an event", e);
    }
    // Runs after the work that the caller has enqueued. The caller's stream does not wait for this
    // operation.
    const cudaStream_t caller = CurrentStream(device_);
    cudaError_t error = cudaEventRecord(work.event, caller);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_, work.event, 0);
    if (error != cudaSuccess) return CudaError("waiting for the caller's stream", error);
    MUSTER_RETURN_IF_ERROR(Enqueued(enqueue));
    error = cudaEventRecord(work.event, stream_);
    if (error != cudaSuccess) return CudaError("recording an event", error);
    absl::MutexLock lock(&mutex_);
    work.deadline = Clock::now() + timeout_;
    return absl::OkStatus();
  }

  // Waits until a non-blocking call has left ncclInProgress. NCCL allows no other call before.
  template <typename Enqueue>
  absl::Status Enqueued(Enqueue enqueue) {
    const MonotonicTime start = Clock::now();
    ncclResult_t result;
    {
      absl::MutexLock lock(&mutex_);
      if (comm_ == nullptr) return poison_;
      result = enqueue(comm_, stream_);
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
    if (result == ncclSuccess) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    return NcclError("enqueuing", result, comm_);
  }

  absl::Status Compare(NcclWork& work) {
    const absl::Status compared = work.comparison->Wait();
    // Adds the operation that the missing rank did not join. The error of the comparison does not
    // name this operation.
    if (absl::IsDeadlineExceeded(compared))
      return DeadlinePassed(fmt::format("{}, to be compared before {} (operation {})",
                                        Message(compared), work.signature.Text(),
                                        work.signature.sequence));
    MUSTER_RETURN_IF_ERROR(compared);
    const std::vector<std::string> labels = shadow_->labels();
    for (int r = 1; r < size(); ++r) {
      if (work.everybodys[r] == work.everybodys[0]) continue;
      return MismatchError(RankName(labels, 0), work.everybodys[0], RankName(labels, r),
                           work.everybodys[r]);
    }
    return absl::OkStatus();
  }

  absl::Status WaitForDevice(NcclWork& work) {
    const MonotonicTime start = Clock::now();
    for (;;) {
      const cudaError_t event = cudaEventQuery(work.event);
      MUSTER_RETURN_IF_ERROR(StateOf(work, event));
      if (event == cudaSuccess) return absl::OkStatus();
      if (Clock::now() > work.deadline) {
        return DeadlinePassed(
            fmt::format("All ranks came to {} (operation {}), but the devices did not finish it.",
                        work.signature.Text(), work.signature.sequence));
      }
      Pause(start);
    }
  }

  // Returns the error of `work`, if any. `event` is the state of its event.
  absl::Status StateOf(const NcclWork& work, cudaError_t event) {
    absl::MutexLock lock(&mutex_);
    if (!poison_.ok()) return poison_;
    // CUDA's error takes precedence, because NCCL's error only says that CUDA has failed.
    if (event != cudaSuccess && event != cudaErrorNotReady)
      return CudaError(work.signature.Text(), event);
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    return NcclError(work.signature.Text(), result, comm_);
  }

  // Ends a healthy communicator. Waits until slower ranks have received its data, which an abort
  // would discard. Does nothing for a failed communicator, because its peers may be gone.
  void Finalize() {
    const MonotonicTime start = Clock::now();
    absl::MutexLock lock(&mutex_);
    if (comm_ == nullptr || !poison_.ok()) return;
    const Duration limit = std::min(timeout_, kFinalizeFor);
    const DeviceScope scope(device_);
    ncclResult_t result = ncclCommFinalize(comm_);
    while (result == ncclInProgress && Clock::now() - start < limit) {
      Pause(start);
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result != ncclSuccess) {
      LogWarning("the NCCL communicator of cuda:{} did not end normally within {:g} s: {}", device_,
                 Seconds(limit), ncclGetErrorString(result));
      return;  // ncclCommAbort frees the communicator.
    }
    ncclCommDestroy(std::exchange(comm_, nullptr));
  }

  void Poison(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (poison_.ok()) poison_ = why.ok() ? Superseded("The communicator was aborted.") : why;
  }

  const std::unique_ptr<Communicator> shadow_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const std::shared_ptr<transport::Traffic> traffic_;
  const collective::OperationSpans spans_;
  const int device_;
  const cudaStream_t stream_;
  uint64_t sequence_ = 0;  // Not guarded, because one thread at a time issues operations.
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

}  // namespace

std::unique_ptr<Communicator> MakeNcclCommunicator(std::unique_ptr<Communicator> shadow,
                                                   const NcclDevice& device, Duration timeout,
                                                   const NcclRecords& records) {
  return std::make_unique<NcclCommunicator>(std::move(shadow), device, timeout, records);
}

}  // namespace muster::collective
