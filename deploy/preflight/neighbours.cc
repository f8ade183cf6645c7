#include "deploy/preflight/neighbours.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/peer_text.h"
#include "common/rpc/host.h"
#include "deploy/preflight/session.h"
#include "deploy/preflight/session_threads.h"
#include "deploy/preflight/sockets.h"
#include "muster/json.h"

namespace muster::preflight {
namespace {

struct Line {
  std::string task, version, cluster_digest, host;
  std::vector<std::string> identity, reached;
};

std::string Write(const Line& line) {
  return Dump(Json{{"muster_preflight", 1},
                   {"task", line.task},
                   {"version", line.version},
                   {"cluster_digest", line.cluster_digest},
                   {"identity", absl::StrJoin(line.identity, "\n")},
                   {"host", line.host},
                   {"reached", line.reached}}) +
         '\n';
}

absl::StatusOr<Line> Read(const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "preflight"));
  Line line;
  int64_t format = 0;
  std::string identity;
  JsonObject object(json, "preflight");
  object.Read("muster_preflight", &format)
      .Read("task", &line.task)
      .Read("version", &line.version)
      .Read("cluster_digest", &line.cluster_digest)
      .Read("identity", &identity)
      .Read("host", &line.host)
      .Read("reached", &line.reached);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  // Cleans the text, because any process may call and the text is printed.
  for (std::string* said : {&line.task, &line.version, &line.cluster_digest, &line.host})
    *said = SanitizePeerText(*said, 200);
  line.identity = absl::StrSplit(identity, '\n', absl::SkipEmpty());
  for (std::string& name : line.identity) name = SanitizePeerText(name, 200);
  return line;
}

class NeighboursImpl final : public Neighbours {
 public:
  explicit NeighboursImpl(NeighbourOptions options) : options_(std::move(options)) {
    for (const auto& [task, address] : options_.addresses)
      if (task != options_.self) found_.neighbours[task].why = "not called yet";
  }
  ~NeighboursImpl() override {
    exiting_ = true;
    for (std::thread& thread : threads_) thread.join();
    answering_.Join();
  }

  absl::Status Listen();
  Reachability Wait(Duration timeout) override;

 private:
  void Serve(int fd);
  void Answer(Fd caller);
  void CallUntilReached(const std::string& task);
  void Call(const std::string& task);
  std::string CallNeighbour(const std::string& task, const addrinfo& address);
  Line Mine();
  void RecordLine(const Line& line, bool called);
  bool ReachedAll();
  bool Complete();
  void ShareReached();

  const NeighbourOptions options_;
  std::atomic<bool> exiting_ = false;
  std::vector<Fd> listening_;
  std::vector<std::thread> threads_;
  SessionThreads answering_;  // A silent caller does not block others.

  absl::Mutex mu_;
  Reachability found_ ABSL_GUARDED_BY(mu_);
};

absl::Status NeighboursImpl::Listen() {
  for (const std::string& address : options_.listen) {
    const absl::StatusOr<AddressList> list =
        Resolve(address, SOCK_STREAM, AI_NUMERICHOST | AI_PASSIVE);
    if (!list.ok())
      return ConfigurationError(fmt::format("'{}' is not a numeric address", address));
    const addrinfo& where = **list;
    Fd socket(::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket.get(), where.ai_addr, where.ai_addrlen) != 0 ||
        listen(socket.get(), SOMAXCONN) != 0)
      return ConfigurationError(
          fmt::format("cannot listen on {}: {}", address, std::strerror(errno)));
    listening_.push_back(std::move(socket));
  }
  for (const Fd& socket : listening_)
    threads_.emplace_back([this, fd = socket.get()] { Serve(fd); });
  for (const auto& [task, address] : options_.addresses) {
    if (task != options_.self)
      threads_.emplace_back([this, name = task] { CallUntilReached(name); });
  }
  return absl::OkStatus();
}

void NeighboursImpl::Serve(int fd) {
  while (!exiting_) {
    if (!WaitFor(fd, POLLIN, Clock::now() + std::chrono::milliseconds(100))) continue;
    auto caller = std::make_shared<Fd>(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (*caller) answering_.Start([this, caller] { Answer(std::move(*caller)); });
  }
}

void NeighboursImpl::Answer(Fd caller) {
  const MonotonicTime until = Clock::now() + options_.call;
  const std::string text = ReceiveLine(caller.get(), until);
  if (options_.on_session && PeerSession::Begins(text))
    return options_.on_session(std::move(caller), text);
  const absl::StatusOr<Line> line = Read(text);
  if (!line.ok()) return;  // The caller is not a preflight.
  RecordLine(*line, /*called=*/true);
  SendText(caller.get(), Write(Mine()), until);
}

void NeighboursImpl::CallUntilReached(const std::string& task) {
  while (!exiting_) {
    Call(task);
    {
      absl::MutexLock lock(&mu_);
      if (found_.neighbours[task].reached) return;
    }
    const MonotonicTime next = Clock::now() + options_.between_calls;
    while (!exiting_ && Clock::now() < next)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void NeighboursImpl::Call(const std::string& task) {
  const absl::StatusOr<AddressList> list = Resolve(options_.addresses.at(task), SOCK_STREAM, 0);
  std::string why(Message(list.status()));
  for (const addrinfo* a = list.ok() ? list->get() : nullptr; a != nullptr; a = a->ai_next) {
    why = CallNeighbour(task, *a);
    if (why.empty()) break;
  }
  absl::MutexLock lock(&mu_);
  Neighbour& neighbour = found_.neighbours[task];
  neighbour.resolved = neighbour.resolved || list.ok();
  if (neighbour.reached) return;
  neighbour.why = why;
  if (!why.empty()) return;
  neighbour.reached = true;
  found_.reached[options_.self].insert(task);
}

// Returns why the task does not answer, "" if it does.
std::string NeighboursImpl::CallNeighbour(const std::string& task, const addrinfo& address) {
  const MonotonicTime until = Clock::now() + options_.call;
  const absl::StatusOr<Fd> socket = ConnectTo(address, {}, until);
  if (!socket.ok()) return std::string(Message(socket.status()));
  if (!SendText(socket->get(), Write(Mine()), until)) return "connected, but cannot send";
  const absl::StatusOr<Line> line = Read(ReceiveLine(socket->get(), until));
  if (!line.ok()) return "another process listens there, not muster preflight (a running job?)";
  if (line->task != task) return fmt::format("{} answers there", line->task);
  RecordLine(*line, /*called=*/false);
  return "";
}

Line NeighboursImpl::Mine() {
  absl::MutexLock lock(&mu_);
  const auto& reached = found_.reached[options_.self];
  return {options_.self,        options_.version,  options_.cluster_digest,
          rpc::ThisHost().name, options_.identity, {reached.begin(), reached.end()}};
}

void NeighboursImpl::RecordLine(const Line& line, bool called) {
  absl::MutexLock lock(&mu_);
  const auto at = found_.neighbours.find(line.task);
  if (at == found_.neighbours.end()) return;
  Neighbour& neighbour = at->second;
  neighbour.called = neighbour.called || called;
  neighbour.version = line.version;
  neighbour.cluster_digest = line.cluster_digest;
  neighbour.identity = line.identity;
  neighbour.host = line.host;
  std::set<std::string>& reached = found_.reached[line.task];
  for (const std::string& name : line.reached)
    if (options_.addresses.contains(name)) reached.insert(name);
  if (called) reached.insert(options_.self);
}

bool NeighboursImpl::ReachedAll() {
  absl::MutexLock lock(&mu_);
  return std::all_of(found_.neighbours.begin(), found_.neighbours.end(),
                     [](const auto& n) { return n.second.reached; });
}

bool NeighboursImpl::Complete() {
  if (!ReachedAll()) return false;
  if (options_.listen.empty()) return true;  // Other tasks do not call this task.
  absl::MutexLock lock(&mu_);
  for (const auto& [from, address] : options_.addresses) {
    for (const auto& [to, other] : options_.addresses)
      if (from != to && !found_.reached[from].contains(to)) return false;
  }
  return true;
}

void NeighboursImpl::ShareReached() {
  std::vector<std::string> reached;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [task, neighbour] : found_.neighbours)
      if (neighbour.reached) reached.push_back(task);
  }
  std::vector<std::thread> calls;
  for (const std::string& task : reached) calls.emplace_back([this, task] { Call(task); });
  for (std::thread& call : calls) call.join();
}

Reachability NeighboursImpl::Wait(Duration timeout) {
  const MonotonicTime until = Clock::now() + timeout;
  const auto wait_for = [until](const std::function<bool()>& done) {
    while (!done() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return done();
  };
  // All other tasks still listen, because no task leaves before it has received this report.
  const bool reached = wait_for([this] { return ReachedAll(); });
  if (reached) ShareReached();
  const bool complete = wait_for([this] { return Complete(); });
  // The timeout has passed. Reports the state so far. Best effort, because some tasks may already
  // have left.
  if (!complete) ShareReached();
  absl::MutexLock lock(&mu_);
  Reachability found = found_;
  found.complete = complete;
  return found;
}

}  // namespace

bool AcceptEachOther(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto takes = [](const auto& accepted, const auto& other) {
    return !other.empty() && std::ranges::find(accepted, other[0]) != accepted.end();
  };
  return takes(a, b) && takes(b, a);
}

absl::StatusOr<std::unique_ptr<Neighbours>> Neighbours::Start(NeighbourOptions options) {
  auto neighbours = std::make_unique<NeighboursImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(neighbours->Listen());
  return neighbours;
}

}  // namespace muster::preflight
