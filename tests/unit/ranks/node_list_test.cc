#include "deploy/ranks/node_list.h"

#include <gmock/gmock.h>

namespace muster::ranks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> Nodes(std::string_view text) {
  const auto nodes = ParseNodeList(text);
  EXPECT_TRUE(nodes.ok()) << text << ": " << nodes.status();
  return nodes.value_or(std::vector<std::string>());
}

TEST(NodeList, ExpandsWhatSlurmPrints) {
  EXPECT_THAT(Nodes("login"), ElementsAre("login"));
  EXPECT_THAT(Nodes("node[01-03,7]"), ElementsAre("node01", "node02", "node03", "node7"));
  EXPECT_THAT(Nodes("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(Nodes("linux[0998-1001]"),
              ElementsAre("linux0998", "linux0999", "linux1000", "linux1001"));
  EXPECT_THAT(Nodes("n[098-102,7]"), ElementsAre("n098", "n099", "n100", "n101", "n102", "n7"));
  EXPECT_THAT(Nodes("n[9-10,011]"), ElementsAre("n9", "n10", "n011"));
  EXPECT_THAT(Nodes("n[1-3,7],login"), ElementsAre("n1", "n2", "n3", "n7", "login"));
  EXPECT_THAT(Nodes("gpu-a100-[03-04]"), ElementsAre("gpu-a100-03", "gpu-a100-04"));
  EXPECT_THAT(Nodes("n1-ib,n2-ib"), ElementsAre("n1-ib", "n2-ib"));
  EXPECT_THAT(Nodes("n[1-2]-ib"), ElementsAre("n1-ib", "n2-ib"));
  EXPECT_THAT(Nodes("nid[001234,001240-001241]"),
              ElementsAre("nid001234", "nid001240", "nid001241"));
  EXPECT_THAT(Nodes("c[5],c[5-6].cluster.example"),
              ElementsAre("c5", "c5.cluster.example", "c6.cluster.example"));
}

TEST(NodeList, KeepsTheOrderAndRepetitions) {
  // TensorFlow sorts the names as text, so that n10 comes before n2. Slurm's ranks do not.
  EXPECT_THAT(Nodes("n[2,10,11]"), ElementsAre("n2", "n10", "n11"));
  EXPECT_THAT(Nodes("tux[2,1-2]"), ElementsAre("tux2", "tux1", "tux2"));
  EXPECT_THAT(Nodes("b,a,b"), ElementsAre("b", "a", "b"));
}

TEST(NodeList, TheLastBracketsVaryFastest) {
  EXPECT_THAT(Nodes("rack[0-1]_blade[0-2]"),
              ElementsAre("rack0_blade0", "rack0_blade1", "rack0_blade2", "rack1_blade0",
                          "rack1_blade1", "rack1_blade2"));
  EXPECT_THAT(Nodes("r[1-2]c[01]s[3,5],x"),
              ElementsAre("r1c01s3", "r1c01s5", "r2c01s3", "r2c01s5", "x"));
}

TEST(NodeList, RefusesWhatIsNoList) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "an empty name"},
      {"n1,", "an empty name"},
      {",n1", "an empty name"},
      {"n[1-3", "not closed"},
      {"n1-3]", "a bracket too many at character 5"},
      {"n[[1-2]]", "a bracket too many at character 3"},
      {"n[]", "\"\" where a range"},
      {"n[1-]", "\"1-\" where a range"},
      {"n[-3]", "\"-3\" where a range"},
      {"n[1--3]", "\"1--3\" where a range"},
      {"n[a-c]", "\"a-c\" where a range"},
      {"n[1,,2]", "\"\" where a range"},
      {"n[3-1]", "\"3-1\", which ends before it begins"},
      {"n[1-99999999999]", "where a range"},
      {"n[0-999999999]", "more than 65536"},
      {"n[0-65536]", "more than 65536"},
      {"n[0-65535],m", "more than 65536"},
      {"n[0-40000,0-40000]", "more than 65536"},
      {"r[0-999]n[0-999]", "more than 65536"}};
  for (const auto& [text, problem] : kCases) {
    const auto nodes = ParseNodeList(text);
    ASSERT_FALSE(nodes.ok()) << text;
    EXPECT_THAT(std::string(Message(nodes.status())), HasSubstr(problem)) << text;
  }
  EXPECT_THAT(Nodes("n[0-65535]"), SizeIs(65536));
}

TEST(TaskCounts, RepeatsInSlurmsOrder) {
  EXPECT_THAT(*ParseTaskCounts("4"), ElementsAre(4));
  EXPECT_THAT(*ParseTaskCounts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ParseTaskCounts("3(x2),2,1"), ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(*ParseTaskCounts("1,0,2"), ElementsAre(1, 0, 2));
}

TEST(TaskCounts, RefusesWhatIsNoCount) {
  for (const char* text : {"", "2,", "x", "2x3", "2(x)", "2(x0)", "2(x3", "(x3)", "-1", "2(x-3)",
                           "2 (x3)", "2(x3)1"}) {
    const auto counts = ParseTaskCounts(text);
    ASSERT_FALSE(counts.ok()) << text;
    EXPECT_THAT(std::string(Message(counts.status())), HasSubstr("where a count such as 2(x3)"))
        << text;
  }
  EXPECT_FALSE(ParseTaskCounts("1(x70000)").ok());
  EXPECT_FALSE(ParseTaskCounts("70000").ok());
}

TEST(PortList, ExpandsRanges) {
  EXPECT_THAT(*ParsePortList("12000-12002,12010"), ElementsAre(12000, 12001, 12002, 12010));
  EXPECT_THAT(*ParsePortList("9"), ElementsAre(9));
  for (const char* text : {"", "0", "65536", "1-65536", "12000-", "b", "1-65535,1-65535"}) {
    EXPECT_FALSE(ParsePortList(text).ok()) << text;
  }
}

using HostList = std::vector<HostSlots>;

TEST(Hosts, ReadsAListOnTheCommandLine) {
  EXPECT_EQ(*ParseHosts("a"), (HostList{{"a", 0}}));
  EXPECT_EQ(*ParseHosts("a,b"), (HostList{{"a", 0}, {"b", 0}}));
  EXPECT_EQ(*ParseHosts("a:4, b:2"), (HostList{{"a", 4}, {"b", 2}}));
  EXPECT_EQ(*ParseHosts("10.0.0.1:4,[fe80::1]:2,[::1]"),
            (HostList{{"10.0.0.1", 4}, {"fe80::1", 2}, {"::1", 0}}));
}

TEST(Hosts, ReadsTheFilesOfLaunchers) {
  // Open MPI.
  EXPECT_EQ(*ParseHosts("# my hosts: two, large\na slots=4 max_slots=8\n\nb\tslots=2 # old\n"),
            (HostList{{"a", 4}, {"b", 2}}));
  // MPICH and Intel MPI, with the line ends of another system.
  EXPECT_EQ(*ParseHosts("a:4\r\nb:2\r\n"), (HostList{{"a", 4}, {"b", 2}}));
  // PBS: a line for each process.
  EXPECT_EQ(*ParseHosts("a\na\na\nb\n"), (HostList{{"a", 3}, {"b", 0}}));
}

TEST(Hosts, RefusesWhatIsNoHost) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "names no host"},
      {"# only this\n", "names no host"},
      {",", "names no host"},
      {":4", "an empty name"},
      {"a:0", "\"a:0\", whose"},
      {"a:four", "whose number of processes is invalid"},
      {"a:4:5", "whose number"},
      {"a slots=x", "\"slots=x\", which is not a number"},
      {"a slots=0", "is not a number"},
      {"[::1", "not closed"},
      {"a:2222222", "without a port"}};
  for (const auto& [text, problem] : kCases) {
    const auto hosts = ParseHosts(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(std::string(Message(hosts.status())), HasSubstr(problem)) << text;
  }
}

}  // namespace
}  // namespace muster::ranks
