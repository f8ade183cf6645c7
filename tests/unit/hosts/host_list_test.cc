#include "deploy/hosts/host_list.h"

#include <gmock/gmock.h>

#include <fstream>

#include "common/base/random_name.h"
#include "deploy/hosts/names.h"

namespace muster::hosts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto hosts = ReadHostList(text);
  return hosts.ok() ? "" : std::string(Message(hosts.status()));
}

std::vector<std::string> Shown(const absl::StatusOr<std::vector<Host>>& hosts) {
  std::vector<std::string> shown;
  if (!hosts.ok()) return {std::string(Message(hosts.status()))};
  for (const Host& host : *hosts) shown.push_back(host.target + " " + std::to_string(host.slots));
  return shown;
}

TEST(HostList, IsAListOrAFile) {
  EXPECT_THAT(Shown(ReadHostList("a:4,me@b,c:2")), ElementsAre("a 4", "me@b 1", "c 2"));
  const std::string path = testing::TempDir() + "hosts_of_host_list_test.txt";
  std::ofstream(path) << "# two hosts\na slots=2\n\nb\nb\n";
  EXPECT_THAT(Shown(ReadHostList(path)), ElementsAre("a 2", "b 2"));
}

TEST(HostList, RefusesWhatIsNone) {
  EXPECT_THAT(ErrorOf("no/such/file"), HasSubstr("which is not a file"));
  EXPECT_THAT(ErrorOf("a,b,a"), HasSubstr("which names a twice"));
  EXPECT_THAT(ErrorOf("a:0"), HasSubstr("\"a:0\""));
  EXPECT_THAT(ErrorOf(","), HasSubstr("names no host"));
  EXPECT_THAT(ErrorOf("-oProxyCommand=x"), HasSubstr("is not a host name"));
}

std::vector<size_t> Places(const launcher::ClusterSize& size, const std::vector<Host>& hosts) {
  return PlaceTasks(size, hosts).value_or(std::vector<size_t>{99});
}

TEST(PlaceTasks, FillsTheSlotsInOrderAndSpreadsTheRest) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 1}, {"c", 3}};
  // Chief and workers, then ps, then the evaluator.
  EXPECT_THAT(Places({.workers = 3}, hosts), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(Places({.workers = 2, .ps = 4, .evaluator = true}, hosts),
              ElementsAre(0, 0, 1, 0, 1, 2, 0, 2));
  EXPECT_THAT(Places({.workers = 1, .chief = false}, hosts), ElementsAre(0));
  EXPECT_EQ(SlotsOf(hosts), 6);
  EXPECT_EQ(WorkersFor(hosts, {}), 5);
  EXPECT_EQ(WorkersFor(hosts, {.chief = false}), 6);
}

TEST(PlaceTasks, NeedsASlotForEachMember) {
  const auto places = PlaceTasks({.workers = 3, .ps = 1}, {{"a", 2}, {"b", 1}});
  ASSERT_FALSE(places.ok());
  EXPECT_EQ(Message(places.status()),
            "4 members need as many slots, and --hosts has 3: give the hosts more, as in a:3, or "
            "start fewer workers");
}

TEST(HostNames, LoopbackNamesAreForOneHostOnly) {
  EXPECT_TRUE(CheckNames({"10.0.0.1", "gpu2"}).ok());
  EXPECT_TRUE(CheckNames({"127.0.0.1", "localhost"}).ok());
  EXPECT_THAT(std::string(Message(CheckNames({"gpu1", "localhost"}))),
              HasSubstr("--hosts has localhost, at which the other hosts reach only themselves"));
  EXPECT_NE(RandomName(), RandomName());
}

}  // namespace
}  // namespace muster::hosts
