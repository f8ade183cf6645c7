#include "tests/unit/nccl/nccl_double.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "common/base/float16.h"

namespace {

// One lock for everything, because speed does not matter, and one condition for all that is not the
// next task of a stream. They are never destroyed, because the threads of streams still run at the
// end of the process.
std::mutex& mu = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
using Lock = std::unique_lock<std::mutex>;

struct Rule {
  std::string where, what;
  int rank = -1, operation = -1;  // -1: any.
};
std::vector<Rule> rules;
bool rules_read = false;
std::vector<std::string> calls;
std::set<const void*> alive;  // Communicators, events and memory that were not freed.
std::map<int, int> device_faults;
thread_local int current_device = 0;

void ReadRules(const std::string& script) {
  rules.clear();
  rules_read = true;
  std::istringstream parts(script);
  for (std::string part; std::getline(parts, part, ';');) {
    part.erase(std::remove(part.begin(), part.end(), ' '), part.end());
    const size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    Rule rule{part.substr(0, equals), part.substr(equals + 1)};
    if (const size_t hash = rule.where.find('#'); hash != std::string::npos) {
      rule.operation = std::stoi(rule.where.substr(hash + 1));
      rule.where.resize(hash);
    }
    if (const size_t at = rule.where.find('@'); at != std::string::npos) {
      rule.rank = std::stoi(rule.where.substr(at + 1));
      rule.where.resize(at);
    }
    rules.push_back(rule);
  }
}

// Returns the script's value for this place, "" if there is none.
std::string Cue(const std::string& where, int rank, int operation) {
  if (!rules_read) {
    const char* script = std::getenv("MUSTER_NCCL_DOUBLE");
    ReadRules(script == nullptr ? "" : script);
  }
  for (const Rule& rule : rules) {
    if (rule.where == where && (rule.rank < 0 || rank < 0 || rule.rank == rank) &&
        (rule.operation < 0 || rule.operation == operation))
      return rule.what;
  }
  return "";
}

ncclResult_t ResultOf(const std::string& text) {
  return static_cast<ncclResult_t>(std::atoi(text.c_str()));
}

// ---- Streams and events

// A stream. It runs its tasks one after another with the lock held. A task may wait.
struct Stream {
  explicit Stream(int device) : device(device), thread([this] { Run(); }) { thread.detach(); }
  void Run() {
    Lock lock(mu);
    while (true) {
      added.wait(lock, [this] { return !tasks.empty(); });
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task(lock);
      --pending;
      changed.notify_all();
    }
  }
  void Add(std::function<void(Lock&)> task) {
    ++pending;
    tasks.push_back(std::move(task));
    added.notify_one();
  }
  const int device;
  int pending = 0;
  bool held = false;
  std::deque<std::function<void(Lock&)>> tasks;
  // The thread waits for it. The streams of earlier cases live on, and `changed` would wake them
  // all.
  std::condition_variable added;
  std::thread thread;
};

struct Event {
  int device = 0;
  uint64_t recorded = 0, done = 0;
};

// Streams are never destroyed, like those of LibTorch's pool.
Stream* MakeStream(int device) { return new Stream(device); }
Stream* StreamOf(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }

int FaultOf(int device) {
  const auto found = device_faults.find(device);
  return found == device_faults.end() ? 0 : found->second;
}

// ---- Communicators

struct Meeting {  // One operation of all ranks.
  int came = 0;
  bool done = false;
  std::vector<const void*> sends;
  std::vector<void*> receives;
};

struct Group {
  int joined = 0;
  bool broken = false;  // A rank has aborted, so the operations of the others never end.
  std::map<uint64_t, Meeting> meetings;
};
std::map<std::string, std::shared_ptr<Group>> groups;

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0, size = 0, device = 0;
  uint64_t issued = 0;
  ncclResult_t state = ncclInProgress;
  int looks_left = -1;  // Polls until it leaves ncclInProgress. -1: polls do not matter.
  bool connecting = true, stuck = false, aborted = false;
};

namespace {

void Note(const ncclComm* comm, const char* what) {
  calls.push_back(std::to_string(comm->rank) + " " + what);
}

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
      return 8;
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

enum class Verb { kAllReduce, kBroadcast, kAllGather, kReduceScatter };

struct Call {
  Verb verb;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
};

// Returns element i as a double, which sums the values of tests exactly.
double Read(const void* data, size_t i, ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return static_cast<const double*>(data)[i];
    case ncclInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case ncclFloat16:
      return muster::Widen(static_cast<const muster::Float16*>(data)[i]);
    case ncclBfloat16:
      return muster::Widen(static_cast<const muster::BFloat16*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}
void Write(double value, void* data, size_t i, ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      static_cast<double*>(data)[i] = value;
      return;
    case ncclInt64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case ncclFloat16:
      muster::Narrow(static_cast<float>(value), static_cast<muster::Float16*>(data) + i);
      return;
    case ncclBfloat16:
      muster::Narrow(static_cast<float>(value), static_cast<muster::BFloat16*>(data) + i);
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

// Returns element i, reduced over all ranks.
double Reduced(const Meeting& meeting, size_t i, const Call& call) {
  double result = Read(meeting.sends[0], i, call.type);
  for (size_t r = 1; r < meeting.sends.size(); ++r) {
    const double value = Read(meeting.sends[r], i, call.type);
    result = call.op == ncclMax   ? std::max(result, value)
             : call.op == ncclMin ? std::min(result, value)
                                  : result + value;
  }
  return call.op == ncclAvg ? result / static_cast<double>(meeting.sends.size()) : result;
}

void CarryOut(const Call& call, const Meeting& meeting) {
  const size_t size = meeting.sends.size(), bytes = call.count * SizeOf(call.type);
  switch (call.verb) {
    case Verb::kAllReduce: {
      std::vector<double> sum((bytes + sizeof(double) - 1) / sizeof(double));  // Aligned bytes.
      for (size_t i = 0; i < call.count; ++i)
        Write(Reduced(meeting, i, call), sum.data(), i, call.type);
      for (void* to : meeting.receives) std::memcpy(to, sum.data(), bytes);
      break;
    }
    case Verb::kBroadcast:
      for (void* to : meeting.receives) std::memmove(to, meeting.sends[call.root], bytes);
      break;
    case Verb::kAllGather:
      for (void* to : meeting.receives)
        for (size_t r = 0; r < size; ++r)
          std::memmove(static_cast<char*>(to) + r * bytes, meeting.sends[r], bytes);
      break;
    case Verb::kReduceScatter:
      for (size_t r = 0; r < size; ++r)
        for (size_t i = 0; i < call.count; ++i)
          Write(Reduced(meeting, r * call.count + i, call), meeting.receives[r], i, call.type);
      break;
  }
}

// The task of a stream for one operation. Waits for the other ranks, or for an abort. After an
// abort, it ends as if it were complete.
void Kernel(ncclComm* comm, uint64_t number, const Call& call, const void* send, void* receive,
            Lock& lock) {
  const std::shared_ptr<Group> group = comm->group;
  const int rank = comm->rank, device = comm->device, size = comm->size;
  const auto operation = static_cast<int>(number);
  if (const std::string code = Cue("event", rank, operation); !code.empty()) {
    device_faults[device] = std::atoi(code.c_str());
    changed.notify_all();
    return;
  }
  if (const std::string error = Cue("async", rank, operation); !error.empty()) {
    comm->state = ResultOf(error);
    comm->stuck = true;
  }
  const std::string kernel = Cue("kernel", rank, operation);
  if (kernel == "hang") comm->stuck = true;
  changed.notify_all();
  Meeting& meeting = group->meetings[number];
  meeting.sends.resize(size);
  meeting.receives.resize(size);
  // Does not access memory after an abort, because the aborted rank may have freed its memory.
  if (!comm->stuck && !group->broken) {
    meeting.sends[rank] = send;
    meeting.receives[rank] = receive;
    if (++meeting.came == size) {
      CarryOut(call, meeting);
      meeting.done = true;
      changed.notify_all();
    }
  }
  changed.wait(lock, [&] { return comm->aborted || (meeting.done && !comm->stuck); });
  if (kernel == "wrong") *static_cast<float*>(receive) += 1;
}

ncclResult_t Issue(ncclComm* comm, const Call& call, const char* name, const void* send,
                   void* receive, cudaStream_t stream) {
  const Lock lock(mu);
  Note(comm, name);
  if (comm->state != ncclSuccess && comm->state != ncclInProgress) return comm->state;
  const uint64_t number = comm->issued++;
  const std::string cue = Cue("enqueue", comm->rank, static_cast<int>(number));
  if (cue == "hang" || cue == "slow") {
    comm->state = ncclInProgress;
    comm->looks_left = cue == "slow" ? 50 : -1;
    if (cue == "hang") return ncclInProgress;
  } else if (!cue.empty()) {
    return ResultOf(cue);
  }
  StreamOf(stream)->Add([=](Lock& held) { Kernel(comm, number, call, send, receive, held); });
  return cue == "slow" ? ncclInProgress : ncclSuccess;
}

}  // namespace

namespace nccl_double {

void Reset(const std::string& script) {
  const Lock lock(mu);
  ReadRules(script);
  calls.clear();
  alive.clear();
  device_faults.clear();
}
std::vector<std::string> Calls() {
  const Lock lock(mu);
  return calls;
}
int Leaks() {
  const Lock lock(mu);
  return static_cast<int>(alive.size());
}
void* NewStream(int device) { return MakeStream(device); }
void* CurrentStreamOf(int device) {
  thread_local std::map<int, Stream*> streams;
  Stream*& stream = streams[device];
  if (stream == nullptr) stream = MakeStream(device);
  return stream;
}
void Hold(int device) {
  auto* stream = static_cast<Stream*>(CurrentStreamOf(device));
  const Lock lock(mu);
  stream->held = true;
  stream->Add([stream](Lock& held) { changed.wait(held, [&] { return !stream->held; }); });
}
void Release(int device) {
  auto* stream = static_cast<Stream*>(CurrentStreamOf(device));
  const Lock lock(mu);
  stream->held = false;
  changed.notify_all();
}

}  // namespace nccl_double

extern "C" {

// ---- NCCL

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  const Lock lock(mu);
  const char* interface = std::getenv("NCCL_SOCKET_IFNAME");
  calls.push_back(std::string("unique id over ") + (interface == nullptr ? "any" : interface));
  if (const std::string cue = Cue("uniqueid", -1, -1); !cue.empty()) return ResultOf(cue);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "double %d", ++number);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const kTexts[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
  return kTexts[std::min<int>(result, 7)];
}
const char* ncclGetLastError(ncclComm_t) { return "the double's last words\n"; }

ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Lock lock(mu);
  auto* comm = new ncclComm;  // NOLINT: freed where NCCL frees it
  comm->rank = rank;
  comm->size = size;
  comm->device = current_device;
  auto& group = groups[id.internal];
  if (group == nullptr) group = std::make_shared<Group>();
  comm->group = group;
  alive.insert(comm);
  *out = comm;
  Note(comm, config->blocking == 0 ? "init" : "init (blocking)");
  const std::string cue = Cue("init", rank, -1);
  if (cue.empty()) ++group->joined;
  if (!cue.empty() && cue != "hang") comm->state = ResultOf(cue);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const Lock lock(mu);
  if (comm->connecting && comm->group->joined == comm->size && comm->state == ncclInProgress) {
    comm->connecting = false;
    comm->state = ncclSuccess;
  }
  if (comm->looks_left > 0 && --comm->looks_left == 0) comm->state = ncclSuccess;
  *result = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock(mu);
  Note(comm, "finalize");
  comm->state = ncclInProgress;
  comm->looks_left = Cue("finalize", comm->rank, -1) == "hang" ? -1 : 3;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock(mu);
  Note(comm, "destroy");
  alive.erase(comm);  // Not deleted, because a kernel may still access it.
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock(mu);
  Note(comm, "abort");
  comm->aborted = comm->group->broken = true;
  alive.erase(comm);
  changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Issue(comm, {Verb::kAllReduce, count, type, op, 0}, "all_reduce", send, receive, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Issue(comm, {Verb::kBroadcast, count, type, ncclSum, root}, "broadcast", send, receive,
               stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Issue(comm, {Verb::kAllGather, count, type, ncclSum, 0}, "all_gather", send, receive,
               stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Issue(comm, {Verb::kReduceScatter, count, type, op, 0}, "reduce_scatter", send, receive,
               stream);
}

// ---- CUDA

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorECCUncorrectable ? "uncorrectable ECC error encountered"
                                            : "some CUDA error";
}
cudaError_t cudaPeekAtLastError() {
  const Lock lock(mu);
  return static_cast<cudaError_t>(FaultOf(current_device));
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 8;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  properties->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Lock lock(mu);
  *memory = std::malloc(bytes);
  alive.insert(*memory);
  return static_cast<cudaError_t>(FaultOf(current_device));
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(mu);
  alive.erase(memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Lock lock(mu);
  auto* made = new Event{current_device};  // NOLINT: freed by cudaEventDestroy
  alive.insert(made);
  *event = reinterpret_cast<cudaEvent_t>(made);
  return static_cast<cudaError_t>(FaultOf(current_device));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(mu);
  alive.erase(event);  // Not deleted, because a task may still mark it.
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const Lock lock(mu);
  auto* event = reinterpret_cast<Event*>(handle);
  event->device = StreamOf(stream)->device;
  const uint64_t number = ++event->recorded;
  StreamOf(stream)->Add([event, number](Lock&) { event->done = number; });
  return static_cast<cudaError_t>(FaultOf(event->device));
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Lock lock(mu);
  const auto* event = reinterpret_cast<Event*>(handle);
  if (const int fault = FaultOf(event->device); fault != 0) return static_cast<cudaError_t>(fault);
  return event->done == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  const Lock lock(mu);
  auto* event = reinterpret_cast<Event*>(handle);
  const uint64_t number = event->recorded;
  StreamOf(stream)->Add(
      [event, number](Lock& held) { changed.wait(held, [&] { return event->done >= number; }); });
  return static_cast<cudaError_t>(FaultOf(StreamOf(stream)->device));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(mu);
  if (const int fault = FaultOf(StreamOf(stream)->device); fault != 0)
    return static_cast<cudaError_t>(fault);
  return StreamOf(stream)->pending == 0 ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}

}  // extern "C"
