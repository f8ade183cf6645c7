// Environments of Open MPI, PMI and torchrun.
#include "deploy/ranks/ranks.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/unit/ranks/environment_of.h"

namespace muster::ranks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// mpirun of Open MPI 4 and 5, with what matters here: rank 5 of 4 + 2.
const char kOpenMpi[] = R"(
OMPI_APP_CTX_NUM_PROCS=6
OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_NODE_RANK=1
OMPI_COMM_WORLD_RANK=5
OMPI_COMM_WORLD_SIZE=6
OMPI_UNIVERSE_SIZE=8
PMIX_NAMESPACE=prterun-head-20817@1
PMIX_RANK=5
)";
// mpiexec of MPICH and Intel MPI (Hydra).
const char kHydra[] = R"(
GFORTRAN_UNBUFFERED_PRECONNECTED=y
MPI_LOCALNRANKS=2
MPI_LOCALRANKID=0
PMI_FD=9
PMI_RANK=2
PMI_SIZE=4
)";
// mpiexec of HPE Cray (PALS).
const char kPals[] = R"(
PALS_APID=5a1c2a3e-1b1c-4a0e-9a53-0c9b5a0c6d0e
PALS_LOCAL_RANKID=1
PALS_LOCAL_SIZE=2
PALS_NODEID=1
PALS_RANKID=3
PBS_JOBID=918273.pbs01
PMI_LOCAL_RANK=1
PMI_LOCAL_SIZE=2
PMI_RANK=3
PMI_SIZE=4
)";
// torchrun --nnodes 2 --nproc-per-node 2 --node-rank 1 --master-addr a --master-port 29500.
const char kTorchrun[] = R"(
GROUP_RANK=1
GROUP_WORLD_SIZE=2
LOCAL_RANK=0
LOCAL_WORLD_SIZE=2
MASTER_ADDR=a
MASTER_PORT=29500
RANK=2
ROLE_NAME=default
ROLE_RANK=2
ROLE_WORLD_SIZE=4
TORCHELASTIC_MAX_RESTARTS=3
TORCHELASTIC_RESTART_COUNT=1
TORCHELASTIC_RUN_ID=none
WORLD_SIZE=4
)";

RankOptions Hosts(std::vector<HostSlots> hosts, std::string own_host = "") {
  return {.hosts = std::move(hosts), .port = 20000, .own_host = std::move(own_host)};
}

Ranks Read(RankSource source, const std::string& text, const RankOptions& options = {}) {
  const auto ranks = ReadRanks(source, EnvironmentOf(text), options);
  EXPECT_TRUE(ranks.ok()) << text << ": " << ranks.status();
  return ranks.value_or(Ranks{});
}

std::string Refused(RankSource source, const std::string& text, const RankOptions& options = {}) {
  const auto ranks = ReadRanks(source, EnvironmentOf(text), options);
  EXPECT_FALSE(ranks.ok()) << text;
  EXPECT_EQ(ExitCodeOf(ranks.status()), ExitCode::kConfiguration);
  return std::string(Message(ranks.status()));
}

TEST(OpenMpi, TakesTheHostsInBlocks) {
  const Ranks ranks = Read(RankSource::kOpenMpi, kOpenMpi, Hosts({{"a", 4}, {"b", 4}}));
  EXPECT_EQ(ranks.rank, 5);
  EXPECT_THAT(Addresses(ranks),
              ElementsAre("a:20000", "a:20001", "a:20002", "a:20003", "b:20000", "b:20001"));
}

TEST(OpenMpi, OneHostIsTheLoopback) {
  const Ranks ranks = Read(RankSource::kOpenMpi,
                           "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
                           "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                           {.port = 20000});
  EXPECT_THAT(Addresses(ranks), ElementsAre("127.0.0.1:20000", "127.0.0.1:20001"));
}

TEST(OpenMpi, RefusesWithOneSentence) {
  const std::string environment = kOpenMpi;
  const auto refused = [&](const std::string& more, const RankOptions& options = {}) {
    return Refused(RankSource::kOpenMpi, environment + more, options);
  };
  EXPECT_THAT(Refused(RankSource::kOpenMpi, ""),
              HasSubstr("OMPI_COMM_WORLD_RANK is not set, so Open MPI did not start this process: "
                        "put mpirun before it"));
  EXPECT_THAT(refused("OMPI_COMM_WORLD_SIZE="), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(refused(""), HasSubstr("starts 6 processes, 2 on this host, and does not name the "
                                     "other hosts: give --hosts a,b or --hosts FILE"));
  EXPECT_THAT(refused("OMPI_COMM_WORLD_LOCAL_SIZE="), HasSubstr("an unknown number on this host"));
  EXPECT_THAT(
      refused("OMPI_COMM_WORLD_RANK=6"),
      HasSubstr("OMPI_COMM_WORLD_RANK is \"6\", which is not below OMPI_COMM_WORLD_SIZE 6"));
  EXPECT_THAT(refused("OMPI_COMM_WORLD_RANK=x"), HasSubstr("is not an integer of at least 0"));
  EXPECT_THAT(refused("", Hosts({{"a", 3}, {"b", 2}})), HasSubstr("has room for 5 processes"));
  EXPECT_THAT(refused("", Hosts({{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}})),
              HasSubstr("--hosts names 4 hosts for 6 processes: write how many each has"));
  // --map-by node.
  EXPECT_THAT(
      refused("", Hosts({{"a", 3}, {"b", 3}})),
      HasSubstr("rank 5 is process 1 of its host, and by --hosts it is process 2 of b: give "
                "mpirun --map-by slot"));
}

TEST(Hosts, OneNameIsNoHostOfAllProcesses) {
  EXPECT_THAT(
      Refused(RankSource::kOpenMpi, kOpenMpi, Hosts({{"hosts.tx", 0}})),
      HasSubstr("--hosts is \"hosts.tx\", which is not a file, and cannot be the host of all 6 "
                "processes, because this one has 2: name an existing file"));
  const std::string one_host = "PMI_RANK=0 PMI_SIZE=2 PMI_LOCAL_RANK=0 PMI_LOCAL_SIZE=2";
  EXPECT_THAT(Addresses(Read(RankSource::kPmi, one_host, Hosts({{"a", 0}}))),
              ElementsAre("a:20000", "a:20001"));
}

TEST(Hosts, ThisHostMustBeWhereItsRankIs) {
  const std::vector<HostSlots> hosts = {{"b.example", 4}, {"a.example", 2}};
  EXPECT_THAT(Refused(RankSource::kOpenMpi, kOpenMpi, Hosts(hosts, "b")),
              HasSubstr("rank 5 is on a.example by --hosts, and this host is b: name the hosts in "
                        "the order of their ranks"));
  EXPECT_EQ(Read(RankSource::kOpenMpi, kOpenMpi, Hosts(hosts, "a.other.name")).rank, 5);
  // A host may have a name that its own hostname does not show.
  EXPECT_EQ(Read(RankSource::kOpenMpi, kOpenMpi, Hosts(hosts, "ip-10-0-0-1")).rank, 5);
  const std::vector<HostSlots> numbers = {{"10.0.0.1", 4}, {"10.0.0.2", 2}};
  EXPECT_EQ(Read(RankSource::kOpenMpi, kOpenMpi, Hosts(numbers, "10")).rank, 5);
}

TEST(Pmi, ReadsHydraAndPals) {
  const Ranks hydra = Read(RankSource::kPmi, kHydra, Hosts({{"a", 0}, {"b", 0}}));
  EXPECT_EQ(hydra.rank, 2);
  EXPECT_THAT(Addresses(hydra), ElementsAre("a:20000", "a:20001", "b:20000", "b:20001"));
  const Ranks pals = Read(RankSource::kPmi, kPals, Hosts({{"a", 2}, {"b", 2}}));
  EXPECT_EQ(pals.rank, 3);
  EXPECT_EQ(pals.addresses, hydra.addresses);
  EXPECT_THAT(Addresses(Read(RankSource::kPmi, "PMI_RANK=0 PMI_SIZE=1", {.port = 20000})),
              ElementsAre("127.0.0.1:20000"));
}

TEST(Pmi, RefusesWithOneSentence) {
  EXPECT_THAT(Refused(RankSource::kPmi, ""), HasSubstr("PMI_RANK is not set"));
  EXPECT_THAT(Refused(RankSource::kPmi, "PMI_RANK=0"), HasSubstr("PMI_SIZE is not set"));
  EXPECT_THAT(Refused(RankSource::kPmi, kHydra), HasSubstr("give --hosts"));
  EXPECT_THAT(Refused(RankSource::kPmi, "PMIX_RANK=3 PMIX_NAMESPACE=slurm.pmix.7.0"),
              HasSubstr("PMIX_RANK is set and PMI_SIZE is not"));
}

TEST(Torchrun, TakesTheHostsInBlocks) {
  const Ranks ranks = Read(RankSource::kTorchrun, kTorchrun, Hosts({{"a", 0}, {"b", 0}}));
  EXPECT_EQ(ranks.rank, 2);
  EXPECT_EQ(ranks.restarts, 1);
  EXPECT_THAT(Addresses(ranks), ElementsAre("a:20000", "a:20001", "b:20000", "b:20001"));
}

TEST(Torchrun, OneHostIsTheMaster) {
  const Ranks ranks =
      Read(RankSource::kTorchrun, std::string(kTorchrun) + "LOCAL_WORLD_SIZE=4 LOCAL_RANK=2",
           {.port = 20000});
  EXPECT_THAT(Addresses(ranks), ElementsAre("a:20000", "a:20001", "a:20002", "a:20003"));
}

TEST(Torchrun, RefusesWithOneSentence) {
  EXPECT_THAT(Refused(RankSource::kTorchrun, "RANK=0 WORLD_SIZE=1"),
              HasSubstr("MASTER_ADDR is not set, so torchrun did not start this process"));
  EXPECT_THAT(Refused(RankSource::kTorchrun, "MASTER_ADDR=a WORLD_SIZE=1"),
              HasSubstr("RANK is not set, so torchrun did not start this process"));
  EXPECT_THAT(Refused(RankSource::kTorchrun, kTorchrun), HasSubstr("give --hosts"));
  EXPECT_THAT(Refused(RankSource::kTorchrun, std::string(kTorchrun) + "LOCAL_RANK=1",
                      Hosts({{"a", 0}, {"b", 0}})),
              HasSubstr("--node-rank in the order of --hosts"));
}

TEST(DerivedPorts, DifferByJobAndNotByRank) {
  const auto port = [](RankSource source, const std::string& text) {
    return Read(source, text, {.hosts = {{"a", 4}, {"b", 4}}}).addresses.front().port;
  };
  const std::string torchrun = kTorchrun, openmpi = kOpenMpi;
  EXPECT_EQ(port(RankSource::kOpenMpi, openmpi),
            port(RankSource::kOpenMpi,
                 openmpi + "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_RANK=0"));
  EXPECT_NE(port(RankSource::kOpenMpi, openmpi),
            port(RankSource::kOpenMpi, openmpi + "PMIX_NAMESPACE=prterun-head-20818@1"));
  const RankOptions even = {.hosts = {{"a", 2}, {"b", 2}}};
  const auto first = Read(RankSource::kTorchrun, torchrun, even).addresses;
  EXPECT_EQ(first, Read(RankSource::kTorchrun, torchrun + "RANK=0 GROUP_RANK=0", even).addresses);
  EXPECT_NE(first, Read(RankSource::kTorchrun, torchrun + "MASTER_PORT=29501", even).addresses);
}

TEST(DerivedPorts, OfConsecutiveJobsAreApart) {
  const uint64_t kFirst = 4812345;
  for (const std::vector<int>& widths : {std::vector{16}, {17}, {128}, {1, 128, 17, 64, 2}}) {
    std::map<int, uint64_t> taken;
    for (uint64_t job = kFirst; job < kFirst + 119; ++job) {
      const int width = widths[job % widths.size()], first = *DerivedPort(job, width);
      for (int port = first; port < first + width; ++port) {
        const auto [it, added] = taken.emplace(port, job);
        ASSERT_TRUE(added) << port << " of job " << job << " is a port of job " << it->second;
      }
    }
  }
}

TEST(DerivedPorts, StayInTheirRange) {
  for (const int width : {1, 16, 17, 128, 1000, 22000}) {
    for (uint64_t job = 0; job < 5000; ++job) {
      const auto port = DerivedPort(job, width);
      ASSERT_TRUE(port.ok()) << port.status();
      ASSERT_GE(*port, kFirstDerivedPort);
      ASSERT_LE(*port + width - 1, kLastDerivedPort);
    }
  }
  EXPECT_THAT(std::string(Message(DerivedPort(1, 30000).status())), HasSubstr("give --port"));
}

}  // namespace
}  // namespace muster::ranks
