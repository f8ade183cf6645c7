#include "deploy/preflight/neighbours.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace muster::preflight {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A bound port that listens or does not. No other process can take it.
class Port {
 public:
  explicit Port(bool listening = false) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    if (listening) {
      EXPECT_EQ(listen(fd_, 8), 0);
    }
    address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  }
  ~Port() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

class NeighboursTest : public testing::Test {
 protected:
  NeighbourOptions Options(const std::string& task) {
    NeighbourOptions options;
    options.self = task;
    for (size_t i = 0; i < 3; ++i)
      options.addresses[fmt::format("worker:{}", i)] = ports_[i].address();
    options.listen = {options.addresses.at(task)};
    options.version = "1";
    options.cluster_digest = "digest";
    options.between_calls = milliseconds(20);
    options.call = seconds(20);
    return options;
  }
  std::unique_ptr<Neighbours> Start(int worker) {
    ports_[worker].Close();
    auto neighbours = Neighbours::Start(Options(fmt::format("worker:{}", worker)));
    EXPECT_TRUE(neighbours.ok()) << neighbours.status();
    return *std::move(neighbours);
  }
  Port ports_[3];
};

TEST_F(NeighboursTest, AllReachAll) {
  std::unique_ptr<Neighbours> all[3];
  for (int i = 0; i < 3; ++i) all[i] = Start(i);
  Reachability found[3];
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] { found[i] = all[i]->Wait(std::chrono::minutes(1)); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(found[i].complete);
    ASSERT_EQ(found[i].neighbours.size(), 2u);
    for (const auto& [task, neighbour] : found[i].neighbours) {
      EXPECT_TRUE(neighbour.reached && neighbour.called && neighbour.resolved) << task;
      EXPECT_EQ(neighbour.version, "1");
      EXPECT_EQ(neighbour.cluster_digest, "digest");
    }
    for (const auto& [task, reached] : found[i].reached) EXPECT_EQ(reached.size(), 2u) << task;
  }
}

TEST_F(NeighboursTest, ATaskThatHasFinishedWaitsForTasksThatStillCall) {
  ports_[1].Close();
  NeighbourOptions slow = Options("worker:1");
  slow.between_calls = milliseconds(700);
  auto neighbours = Neighbours::Start(slow);
  ASSERT_TRUE(neighbours.ok()) << neighbours.status();
  const std::unique_ptr<Neighbours> second = *std::move(neighbours);
  EXPECT_FALSE(second->Wait(milliseconds(100)).complete);  // Worker 2 was not there at its call.
  auto first = Start(0), third = Start(2);
  Reachability found[3];
  std::vector<std::thread> threads;
  for (Neighbours* task : {first.get(), second.get(), third.get()})
    threads.emplace_back(
        [&found, task, i = threads.size()] { found[i] = task->Wait(std::chrono::minutes(1)); });
  for (std::thread& thread : threads) thread.join();
  for (const Reachability& all : found) {
    EXPECT_TRUE(all.complete);
    for (const auto& [task, reached] : all.reached) EXPECT_EQ(reached.size(), 2u) << task;
  }
}

TEST_F(NeighboursTest, AnAbsentTaskIsNamed) {
  auto first = Start(0), second = Start(1);
  std::thread other([&] { second->Wait(seconds(3)); });
  const Reachability found = first->Wait(seconds(3));
  other.join();
  EXPECT_FALSE(found.complete);
  EXPECT_TRUE(found.neighbours.at("worker:1").reached);
  EXPECT_TRUE(found.neighbours.at("worker:1").called);
  EXPECT_FALSE(found.neighbours.at("worker:2").reached);
  EXPECT_THAT(found.neighbours.at("worker:2").why, HasSubstr("connection refused"));
  EXPECT_TRUE(found.reached.at("worker:1").contains("worker:0"));
}

TEST_F(NeighboursTest, ANameThatDoesNotResolveIsSaid) {
  NeighbourOptions options = Options("worker:0");
  ports_[0].Close();
  options.addresses["worker:1"] = "no-such-host.invalid:1";
  auto neighbours = Neighbours::Start(options);
  ASSERT_TRUE(neighbours.ok()) << neighbours.status();
  const Reachability found = (*neighbours)->Wait(seconds(3));
  EXPECT_FALSE(found.neighbours.at("worker:1").resolved);
  EXPECT_THAT(found.neighbours.at("worker:1").why, HasSubstr("cannot resolve"));
}

TEST_F(NeighboursTest, SomebodyElseOnThePortIsNoNeighbour) {
  const Port stranger(/*listening=*/true);
  NeighbourOptions options = Options("worker:0");
  options.call = milliseconds(500);  // It never answers.
  ports_[0].Close();
  options.addresses["worker:1"] = stranger.address();
  auto neighbours = Neighbours::Start(options);
  ASSERT_TRUE(neighbours.ok()) << neighbours.status();
  const Reachability found = (*neighbours)->Wait(seconds(5));
  EXPECT_FALSE(found.neighbours.at("worker:1").reached);
  EXPECT_THAT(found.neighbours.at("worker:1").why, HasSubstr("not muster preflight"));
}

TEST_F(NeighboursTest, ATakenPortIsAConfigurationError) {
  const Port taken(/*listening=*/true);
  NeighbourOptions options = Options("worker:0");
  options.listen = {taken.address()};
  EXPECT_EQ(ExitCodeOf(Neighbours::Start(options).status()), ExitCode::kConfiguration);
}

TEST_F(NeighboursTest, EachTellsWhoseCertificatesItAccepts) {
  NeighbourOptions options[] = {Options("worker:0"), Options("worker:1")};
  std::unique_ptr<Neighbours> both[2];
  options[0].identity = {"Muster run authority 1", "Muster run authority 2"};
  for (int i = 0; i < 2; ++i) {
    options[i].addresses.erase("worker:2");
    ports_[i].Close();
    auto neighbours = Neighbours::Start(options[i]);
    ASSERT_TRUE(neighbours.ok()) << neighbours.status();
    both[i] = *std::move(neighbours);
  }
  Reachability found[2];
  std::thread other([&] { found[1] = both[1]->Wait(std::chrono::minutes(1)); });
  found[0] = both[0]->Wait(std::chrono::minutes(1));
  other.join();
  EXPECT_EQ(found[1].neighbours.at("worker:0").identity, options[0].identity);
  EXPECT_TRUE(found[0].neighbours.at("worker:1").identity.empty());
}

TEST(AcceptEachOtherTest, TheFirstOfEachIsAmongThoseOfTheOther) {
  EXPECT_TRUE(AcceptEachOther({"a"}, {"a"}));
  EXPECT_TRUE(AcceptEachOther({"a", "b"}, {"b", "a"}));
  EXPECT_TRUE(AcceptEachOther({"a"}, {"a", "b"}));
  EXPECT_FALSE(AcceptEachOther({"a"}, {"b"}));
  EXPECT_FALSE(AcceptEachOther({"a"}, {"b", "a"})) << "the second one shows b";
  EXPECT_FALSE(AcceptEachOther({"b", "a"}, {"a"}));
  EXPECT_FALSE(AcceptEachOther({"a"}, {}));
  EXPECT_FALSE(AcceptEachOther({}, {}));
}

}  // namespace
}  // namespace muster::preflight
