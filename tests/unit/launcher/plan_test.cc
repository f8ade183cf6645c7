#include "deploy/launcher/plan.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>
#include <set>

#include "deploy/launcher/processes/ports.h"

namespace muster::launcher {
namespace {

using testing::HasSubstr;

std::vector<int> Ports(int count) {
  std::vector<int> ports(count);
  std::iota(ports.begin(), ports.end(), 20000);
  return ports;
}

TEST(Plan, GivesEveryTaskAnAddressAndTheChiefTheLead) {
  const auto tasks = PlanCluster({.workers = 2, .ps = 1, .evaluator = true}, Ports(5));
  std::vector<std::string> names;
  for (const PlannedTask& task : tasks) names.push_back(task.Name() + " " + task.address);
  EXPECT_THAT(names, testing::ElementsAre("chief 0 127.0.0.1:20000", "worker 0 127.0.0.1:20001",
                                          "worker 1 127.0.0.1:20002", "ps 0 127.0.0.1:20003",
                                          "evaluator 0 127.0.0.1:20004"));
  EXPECT_TRUE(tasks[0].lead);
  for (size_t i = 1; i < tasks.size(); ++i) EXPECT_FALSE(tasks[i].lead);
  EXPECT_EQ(tasks[3].Binary(), "muster-ps");
}

TEST(Plan, LetsWorkerZeroLeadWithoutAChief) {
  const auto tasks = PlanCluster({.workers = 2, .chief = false}, Ports(2));
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].Name(), "worker 0");
  EXPECT_TRUE(tasks[0].lead);
}

TEST(Plan, WritesTfConfig) {
  const auto tasks = PlanCluster({.workers = 2}, Ports(3));
  EXPECT_EQ(Json::parse(TfConfigFor(tasks, tasks[2])), Json::parse(R"({
    "cluster": {"chief": ["127.0.0.1:20000"], "worker": ["127.0.0.1:20001", "127.0.0.1:20002"]},
    "task": {"type": "worker", "index": 1}})"));
}

TEST(Plan, RefusesClustersThatTrainNothing) {
  EXPECT_TRUE(Check({.workers = 0}).ok());  // the chief trains alone
  EXPECT_TRUE(Check({.workers = 1, .chief = false}).ok());
  EXPECT_THAT(Message(Check({.workers = 0, .chief = false})),
              HasSubstr("--no-chief needs a worker"));
  EXPECT_THAT(Message(Check({.workers = -1})), HasSubstr("must not be negative"));
  EXPECT_THAT(Message(Check({.workers = 0, .ps = 1})), HasSubstr("would train nothing"));
  EXPECT_THAT(Message(Check({.workers = 100000})), HasSubstr("too many"));
}

TEST(Ports, ParsesTheKernelsRange) {
  const auto range = ParsePortRange("32768\t60999\n");
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->low, 32768);
  EXPECT_EQ(range->high, 60999);
  for (const char* bad : {"", "1", "x y", "5 4", "0 10", "1 70000"}) {
    EXPECT_FALSE(ParsePortRange(bad).ok()) << bad;
  }
}

TEST(Ports, LieOutsideTheEphemeralRangeAndAreUnique) {
  const auto reservation = PortReservation::Reserve(200, {32768, 60999}, 22700);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  const std::set<int> unique(reservation->ports().begin(), reservation->ports().end());
  EXPECT_EQ(unique.size(), 200u);
  for (int port : unique) {
    EXPECT_GE(port, 10000);
    EXPECT_LE(port, 65535);
    EXPECT_TRUE(port < 32768 || port > 60999) << port;
  }
}

TEST(Ports, OfTwoReservationsDiffer) {
  const auto first = PortReservation::Reserve(20, {32768, 60999}, 7);
  const auto second = PortReservation::Reserve(20, {32768, 60999}, 7);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::set<int> ports(first->ports().begin(), first->ports().end());
  for (int port : second->ports()) EXPECT_FALSE(ports.contains(port)) << port;
}

TEST(Ports, SkipTheOnesInUse) {
  int port = 0;
  {
    const auto free = PortReservation::Reserve(1, {32768, 60999}, 11);
    ASSERT_TRUE(free.ok());
    port = free->ports()[0];
  }
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);  // all addresses, loopback among them
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  const auto others = PortReservation::Reserve(3, {32768, 60999}, 11);
  close(listener);
  ASSERT_TRUE(others.ok());
  EXPECT_THAT(others->ports(), testing::Not(testing::Contains(port)));
}

TEST(Ports, SayWhatToDoWhenTheEphemeralRangeTakesAll) {
  const auto reservation = PortReservation::Reserve(2, {1024, 65535}, 0);
  ASSERT_FALSE(reservation.ok());
  EXPECT_EQ(ExitCodeOf(reservation.status()), ExitCode::kConfiguration);
  EXPECT_THAT(Message(reservation.status()), HasSubstr("sysctl"));
}

}  // namespace
}  // namespace muster::launcher
