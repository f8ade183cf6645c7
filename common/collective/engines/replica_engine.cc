// The engine for several processes with several replicas each. A replica is a thread. First, the
// threads of a process reduce among themselves. Then the first thread runs the operation with the
// other processes. At last, the other threads copy its result.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "common/collective/engines/engine.h"
#include "common/collective/engines/thread_board.h"
#include "common/collective/group/formation.h"

namespace muster::collective {
namespace {

// Ranks that only wait for other threads time out this much later, so the other error is reported.
constexpr Duration kGrace = std::chrono::seconds(1);

struct Replicas {
  Replicas(std::shared_ptr<Communicator> group, std::vector<int> per_rank, Duration timeout)
      : group(std::move(group)),
        per_rank(std::move(per_rank)),
        timeout(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count()),
        board(this->per_rank[this->group->rank()]) {
    const auto begin = this->per_rank.begin();
    first = std::accumulate(begin, begin + this->group->rank(), 0);
    total = std::accumulate(begin, this->per_rank.end(), 0);
    even = std::all_of(begin, this->per_rank.end(), [&](int k) { return k == *begin; });
  }

  absl::Status GiveUp(const absl::Status& why) {
    const absl::Status reason = board.Keep(why);
    group->Abort(reason);
    return reason;
  }
  // Returns the process of a replica and its index in that process.
  std::pair<int, int> Locate(int replica) const {
    int process = 0;
    while (replica >= per_rank[process]) replica -= per_rank[process++];
    return {process, replica};
  }

  const std::shared_ptr<Communicator> group;
  const std::vector<int> per_rank;
  std::atomic<int64_t> timeout;  // In nanoseconds.
  int first = 0, total = 0;
  bool even = true;
  ThreadBoard board;
  std::vector<std::byte> scratch;  // Used by the first replica, for reduce_scatter.
};

std::vector<std::string> LocalNames(const Replicas& replicas) {
  const std::vector<std::string> tasks = replicas.group->labels();
  const int process = replicas.group->rank(), local = replicas.per_rank[process];
  std::vector<std::string> names;
  for (int i = 0; i < local; ++i) {
    names.push_back(fmt::format("replica {}{}{}", replicas.first + i, tasks.empty() ? "" : " of ",
                                tasks.empty() ? "" : tasks[process]));
  }
  return names;
}

class ReplicaEngine : public Engine {
 public:
  ReplicaEngine(std::shared_ptr<Replicas> replicas, int local)
      : replicas_(std::move(replicas)),
        group_(ThreadGroupOptions(replicas_->board, local, LocalNames(*replicas_))) {}

  ~ReplicaEngine() override {
    (void)replicas_->board.Keep(
        PeerLost(fmt::format("replica {} has left the group.", replicas_->first + group_.rank())));
    group_.Poison();
  }

  std::string Describe() const override {
    return fmt::format("{} threads, then {}", group_.size(), replicas_->group->Describe());
  }

  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    absl::Status status = RunVerb(operation, deadline);
    if (status.ok()) return status;
    // The reason is set before other ranks are woken, because they read it.
    status = replicas_->board.Keep(status);
    group_.Poison();
    status = replicas_->GiveUp(status);
    group_.Quiesce();
    return status;
  }

  void Wake(const absl::Status& why) override {
    (void)replicas_->board.Keep(why);
    group_.Poison();
    (void)replicas_->GiveUp(why);
  }
  void Close(const absl::Status& why) override {
    Wake(why);
    group_.Quiesce();
  }

  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return leads() ? replicas_->group->AllocateReducible(bytes) : nullptr;
  }
  void set_timeout(Duration timeout) override {
    replicas_->timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
    replicas_->group->set_timeout(timeout);
  }

 private:
  bool leads() const { return group_.rank() == 0; }
  // Returns a deadline that is a little later than that of the operation among processes.
  MonotonicTime AfterGroup() const {
    return Clock::now() + std::chrono::nanoseconds(replicas_->timeout.load()) + kGrace;
  }

  absl::Status RunVerb(const Operation& operation, MonotonicTime deadline) {
    if (leads()) replicas_->group->IssueFor(operation.signature);
    switch (operation.signature.verb) {
      case Verb::kAllReduce:
        return AllReduce(operation, deadline);
      case Verb::kBroadcast:
        return Broadcast(operation, deadline);
      case Verb::kAllGather:
        return AllGather(operation, deadline);
      case Verb::kReduceScatter:
        return ReduceScatter(operation, deadline);
      case Verb::kBarrier:
        return Barrier(operation, deadline);
    }
    return ProgramError("unknown verb");
  }

  absl::Status LocalPlan(const Signature& signature, const Plan& plan, MonotonicTime deadline) {
    const auto where =
        reinterpret_cast<int64_t>(SharedMemoryGroup::DirectBase(plan, group_.rank()));
    MUSTER_RETURN_IF_ERROR(group_.Begin(signature, where, {}, deadline));
    return group_.RunDirect(plan, deadline);
  }
  absl::Status CopyFromFirst(const Signature& signature, Buffer buffer) {
    return LocalPlan(signature, MakeBroadcastPlan(buffer, 0, group_.size()), AfterGroup());
  }

  absl::Status AllReduce(const Operation& operation, MonotonicTime deadline) {
    const Signature& s = operation.signature;
    const Buffer& buffer = operation.receive;
    const ReduceOp op = s.op == ReduceOp::kMean ? ReduceOp::kSum : s.op;
    const int local = group_.size();
    const Plan plan = MakeInPlacePlan(buffer, local, local, ReductionOf(op, 1), true, true);
    MUSTER_RETURN_IF_ERROR(LocalPlan(s, plan, deadline));
    if (leads()) MUSTER_RETURN_IF_ERROR(replicas_->group->AllReduce(buffer, op)->Wait());
    MUSTER_RETURN_IF_ERROR(CopyFromFirst(s, buffer));
    if (s.op == ReduceOp::kMean) Divide(buffer.data, buffer.data, buffer.count, s.type);
    return absl::OkStatus();
  }

  void Divide(const void* from, void* to, int64_t count, DataType type) const {
    ReduceElements({&to, 1}, {&from, 1}, count, type, {.divisor = replicas_->total});
  }

  absl::Status Broadcast(const Operation& operation, MonotonicTime deadline) {
    const Signature& s = operation.signature;
    const auto [process, local] = replicas_->Locate(s.root);
    Plan plan;
    plan.parts.resize(group_.size());
    // In the root's process, the root first passes the data to the first replica.
    if (process == replicas_->group->rank()) {
      plan = MakeBroadcastPlan(operation.receive, local, group_.size());
    }
    MUSTER_RETURN_IF_ERROR(LocalPlan(s, plan, deadline));
    if (leads()) {
      MUSTER_RETURN_IF_ERROR(replicas_->group->Broadcast(operation.receive, process)->Wait());
    }
    return CopyFromFirst(s, operation.receive);
  }

  absl::Status AllGather(const Operation& operation, MonotonicTime deadline) {
    const Signature& s = operation.signature;
    const Buffer& receive = operation.receive;
    const int64_t bytes = operation.send.bytes();
    auto* base = static_cast<std::byte*>(receive.data);
    MUSTER_RETURN_IF_ERROR(group_.Begin(s, reinterpret_cast<int64_t>(base), {}, deadline));
    auto* firsts = reinterpret_cast<std::byte*>(group_.WhereOf(0));
    if (bytes > 0 && !group_.Touch([&] {
          std::memmove(firsts + (replicas_->first + group_.rank()) * bytes, operation.send.data,
                       bytes);
        })) {
      return Superseded("another rank gave up");
    }
    MUSTER_RETURN_IF_ERROR(group_.WaitAll(group_.Arrive(), deadline));
    if (leads()) MUSTER_RETURN_IF_ERROR(GatherProcesses(receive, s.count));
    return CopyFromFirst(s, receive);
  }

  // Gathers the parts of all processes into `receive` of the first replica. REQUIRES: `receive`
  // already contains this process's part at its place.
  absl::Status GatherProcesses(Buffer receive, int64_t count) {
    Communicator& group = *replicas_->group;
    auto* base = static_cast<std::byte*>(receive.data);
    const int64_t stride = count * SizeOf(receive.type);
    if (replicas_->even) {
      const Buffer mine{base + replicas_->first * stride, count * group_.size(), receive.type};
      return group.AllGather(mine, receive)->Wait();
    }
    WorkPtr last;
    int64_t at = 0;
    for (int process = 0; process < group.size(); ++process) {
      const int64_t part = count * replicas_->per_rank[process];
      last = group.Broadcast({base + at, part, receive.type}, process);
      at += part * SizeOf(receive.type);
    }
    return last->Wait();
  }

  absl::Status ReduceScatter(const Operation& operation, MonotonicTime deadline) {
    const Signature& s = operation.signature;
    const Buffer& send = operation.send;
    const ReduceOp op = s.op == ReduceOp::kMean ? ReduceOp::kSum : s.op;
    const int64_t element = SizeOf(s.type);
    if (leads()) replicas_->scratch.resize(send.bytes());
    MUSTER_RETURN_IF_ERROR(group_.Begin(s, reinterpret_cast<int64_t>(send.data), {}, deadline));
    const Plan plan = MakeInPlacePlan(send, group_.size(), group_.size(), {}, true, false);
    const RankPart& mine = plan.parts[group_.rank()];
    const int64_t offset = mine.send - plan.base;
    std::vector<const void*> sources;
    for (int r = 0; r < group_.size(); ++r) {
      sources.push_back(reinterpret_cast<std::byte*>(group_.WhereOf(r)) + offset);
    }
    void* out = replicas_->scratch.data() + offset;
    if (mine.count > 0 && !group_.Touch([&] {
          ReduceElements({&out, 1}, sources, mine.count, s.type, ReductionOf(op, 1));
        })) {
      return Superseded("another rank gave up");
    }
    MUSTER_RETURN_IF_ERROR(group_.WaitAll(group_.Arrive(), deadline));
    if (leads()) {
      const Buffer all{replicas_->scratch.data(), send.count, s.type};
      MUSTER_RETURN_IF_ERROR(replicas_->group->AllReduce(all, op)->Wait());
    }
    MUSTER_RETURN_IF_ERROR(group_.Begin(s, -1, {}, AfterGroup()));
    const std::byte* from =
        replicas_->scratch.data() + (replicas_->first + group_.rank()) * s.count * element;
    void* to = operation.receive.data;
    const void* source = from;
    const int64_t divisor = s.op == ReduceOp::kMean ? replicas_->total : 1;
    if (s.count > 0) ReduceElements({&to, 1}, {&source, 1}, s.count, s.type, {.divisor = divisor});
    return group_.WaitAll(group_.Arrive(), AfterGroup());
  }

  absl::Status Barrier(const Operation& operation, MonotonicTime deadline) {
    MUSTER_RETURN_IF_ERROR(group_.Begin(operation.signature, -1, {}, deadline));
    if (leads()) MUSTER_RETURN_IF_ERROR(replicas_->group->Barrier()->Wait());
    return group_.Begin(operation.signature, -1, {}, AfterGroup());
  }

  const std::shared_ptr<Replicas> replicas_;
  SharedMemoryGroup group_;
};

}  // namespace
std::vector<std::unique_ptr<Communicator>> MakeReplicaCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    Duration timeout) {
  std::vector<std::unique_ptr<Communicator>> result;
  const bool single =
      std::all_of(replicas_per_rank.begin(), replicas_per_rank.end(), [](int k) { return k == 1; });
  if (single) {
    group->set_timeout(timeout);
    result.push_back(std::move(group));
    return result;
  }
  group->set_timeout(timeout);
  const auto recorder = group->TakeRecorder();
  auto replicas = std::make_shared<Replicas>(std::move(group), replicas_per_rank, timeout);
  const int local = replicas_per_rank[replicas->group->rank()];
  for (int i = 0; i < local; ++i) {
    result.push_back(
        MakeCommunicator(std::make_unique<ReplicaEngine>(replicas, i), {.rank = replicas->first + i,
                                                                        .size = replicas->total,
                                                                        .timeout = timeout,
                                                                        .recorder = recorder}));
  }
  return result;
}

}  // namespace muster::collective
