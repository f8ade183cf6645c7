// A session that is cut at the very end: its member learns of the end all the same.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "absl/synchronization/notification.h"
#include "common/base/files/fd.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using ::testing::HasSubstr;

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A link to a port of this host, which a test can cut: then all connections over it break, and new
// ones end at once, until it is mended.
class Link {
 public:
  explicit Link(int target) : target_(target), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 64), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Link() {
    exiting_ = true;
    Wake();
    thread_.join();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  void Cut() {
    cut_ = true;
    Wake();
  }
  void Mend() { cut_ = false; }

 private:
  void Wake() { EXPECT_EQ(eventfd_write(wake_.get(), 1), 0); }
  void Accept() {
    Fd near(accept(listener_.get(), nullptr, nullptr));
    if (cut_) return;
    Fd far(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in target = Loopback(target_);
    if (connect(far.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) return;
    peer_[near.get()] = far.get();
    peer_[far.get()] = near.get();
    open_.emplace(near.get(), std::move(near));
    open_.emplace(far.get(), std::move(far));
  }
  void Close(int fd) {
    const int other = peer_.at(fd);
    for (const int end : {fd, other}) {
      peer_.erase(end);
      open_.erase(end);
    }
  }
  void Pass(int fd) {
    char bytes[16384];
    const ssize_t size = read(fd, bytes, sizeof bytes);
    if (size <= 0 || send(peer_.at(fd), bytes, size, MSG_NOSIGNAL) != size) Close(fd);
  }
  void Run() {
    while (!exiting_) {
      std::vector<pollfd> all = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      for (const auto& [fd, open] : open_) all.push_back({fd, POLLIN, 0});
      poll(all.data(), all.size(), -1);
      eventfd_t count = 0;
      if (all[1].revents != 0) eventfd_read(wake_.get(), &count);
      while (cut_ && !open_.empty()) Close(open_.begin()->first);
      for (size_t i = 2; i < all.size(); ++i)
        if (all[i].revents != 0 && open_.contains(all[i].fd)) Pass(all[i].fd);
      if (all[0].revents != 0) Accept();
    }
  }

  const int target_;
  int port_ = 0;
  const Fd listener_, wake_{eventfd(0, 0)};
  std::atomic<bool> cut_ = false, exiting_ = false;
  std::map<int, Fd> open_;   // the thread's own
  std::map<int, int> peer_;  // likewise
  std::thread thread_;
};

proto::StatusReply StatusOf(const TestCluster& cluster) {
  proto::StatusReply reply;
  (void)proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()))
      ->Status(rpc::WithDeadline(std::chrono::seconds(5)).get(), {}, &reply);
  return reply;
}

template <typename Condition>
void Await(const TestCluster& cluster, const char* what, const Condition& condition) {
  const MonotonicTime end = Clock::now() + kLimit;
  while (!condition(StatusOf(cluster))) {
    ASSERT_LT(Clock::now(), end) << what;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

class Ending : public ::testing::Test {
 protected:
  static TestTimes Times() {
    TestTimes times;
    times.resume = std::chrono::seconds(10);
    times.rejoin = std::chrono::seconds(3);
    times.end = std::chrono::minutes(2);
    return times;
  }
  // The link to worker 0 breaks after it has finished, and the job ends with the action of the
  // chief's loop. With `back`, worker 0 returns in time. The chief ends as soon as the coordinator
  // lets it.
  void End(bool back, const Crew::Body& chiefs) {
    CoordinatorOptions coordinator = cluster_.coordinator_options();
    Link link(cluster_.port());
    membership::MemberOptions options = cluster_.member_options(1);
    options.chief_address = link.address();
    if (back)
      coordinator.decision.resume = options.timeouts.resume = options.timeouts.rejoin = kLimit;
    ASSERT_TRUE(cluster_.StartChief(std::move(coordinator)).ok());
    absl::Notification cut;
    crew_.Add(cluster_.member_options(0), [&](membership::Member& member, Generation& generation) {
      cut.WaitForNotification();
      return chiefs(member, generation);
    });
    crew_.Add(std::move(options), FinishAt7);
    Await(cluster_, "worker 0 has finished", [](const proto::StatusReply& reply) {
      return reply.members_size() == 2 && reply.members(1).phase() == PhaseName(Phase::kEnding);
    });
    link.Cut();
    Await(cluster_, "its session is broken", [](const proto::StatusReply& reply) {
      return reply.members_size() == 2 && !reply.members(1).connected();
    });
    std::thread chief([this] {
      verdict_ = cluster_.coordinator().Wait();
      ended_ = true;
      cluster_.StopChief();
    });
    cut.Notify();
    Await(cluster_, "there is a verdict",
          [this](const proto::StatusReply& reply) { return reply.stage() == "ending" || ended_; });
    if (back) link.Mend();
    crew_.Join();
    chief.join();
  }

  TestCluster cluster_{1, Times()};
  Crew crew_;
  Verdict verdict_;
  std::atomic<bool> ended_ = false;
};

TEST_F(Ending, AMemberWhoseSessionBreaksAtTheVerdictIsAwaited) {
  End(true, FinishAt7);
  EXPECT_EQ(verdict_.code, ExitCode::kDone);
  EXPECT_TRUE(crew_.result(1).ok()) << Message(crew_.result(1));
}

TEST_F(Ending, OneThatStaysAwayIsNotAwaitedForLong) {
  const MonotonicTime start = Clock::now();
  End(false, FinishAt7);
  EXPECT_EQ(verdict_.code, ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(crew_.result(1)), ExitCode::kRetryable);
  EXPECT_LT(Clock::now() - start, kLimit);
}

}  // namespace
}  // namespace muster::chief::testing
