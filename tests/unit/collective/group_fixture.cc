#include "tests/unit/collective/group_fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/unit/transport/test_authority.h"

namespace muster::testing {

using collective::Backend;
using collective::Communicator;
using collective::GroupSpec;

const std::string kTicket = fmt::format("{:016x}", getpid());

const std::vector<std::string>& BackendNames() {
  static const std::vector<std::string> names = {"threads",
                                                 "tcp",
                                                 "tcp_progress",
                                                 "tcp_tls",
                                                 "shared_memory",
                                                 "shared_memory_progress",
                                                 "shared_memory_spin",
                                                 "hierarchical",
                                                 "hierarchical_uneven",
                                                 "hierarchical_tls",
                                                 "replicas",
                                                 "replicas_tcp"};
  return names;
}

std::unique_ptr<transport::DataListener> MakeListener() {
  auto listener = transport::DataListener::Create({.bind_address = "127.0.0.1"});
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

std::vector<std::unique_ptr<transport::DataListener>> MakeListeners(int count) {
  std::vector<std::unique_ptr<transport::DataListener>> listeners;
  for (int i = 0; i < count; ++i) listeners.push_back(MakeListener());
  return listeners;
}

std::vector<std::unique_ptr<transport::DataListener>> MakeSecureListeners(int count) {
  static TestAuthority authority;
  std::vector<std::unique_ptr<transport::DataListener>> listeners;
  for (int i = 0; i < count; ++i) {
    auto listener = transport::DataListener::Create(
        {.bind_address = "127.0.0.1", .security = authority.Issue(fmt::format("worker:{}", i))});
    EXPECT_TRUE(listener.ok()) << listener.status();
    listeners.push_back(*std::move(listener));
  }
  return listeners;
}

GroupSpec MakeSpec(const std::vector<std::unique_ptr<transport::DataListener>>& listeners,
                   GroupOptions options) {
  GroupSpec spec;
  spec.generation = options.generation;
  spec.ticket = kTicket;
  spec.formation_timeout = std::chrono::minutes(2);
  spec.operation_timeout = options.timeout;
  spec.progress_thread = false;
  for (size_t i = 0; i < listeners.size(); ++i) {
    spec.members.push_back({fmt::format("worker:{}", i), "host", listeners[i]->address(), 1});
  }
  return spec;
}

void OnEachRank(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Communicator>> Form(
    const GroupSpec& spec, const std::vector<std::unique_ptr<transport::DataListener>>& listeners) {
  std::vector<std::unique_ptr<Communicator>> formed(spec.members.size());
  OnEachRank(static_cast<int>(formed.size()), [&](int rank) {
    GroupSpec mine = spec;
    mine.rank = rank;
    auto communicator = collective::FormGroup(mine, *listeners[rank], nullptr);
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    if (communicator.ok()) formed[rank] = *std::move(communicator);
  });
  return formed;
}

const std::vector<std::string>& LayoutNames() {
  static const std::vector<std::string> names = {"one_host",        "alone",       "pairs",
                                                 "blocks_of_three", "two_in_turn", "three_in_turn",
                                                 "one_and_all",     "squares"};
  return names;
}

std::vector<std::string> HostsOf(const std::string& layout, int size) {
  std::vector<std::string> hosts;
  for (int i = 0; i < size; ++i) {
    int host = 0;
    if (layout == "alone") host = i;
    if (layout == "pairs") host = i / 2;
    if (layout == "blocks_of_three") host = i / 3;
    if (layout == "two_in_turn") host = i % 2;
    if (layout == "three_in_turn") host = i % 3;
    if (layout == "one_and_all") host = std::min(i, 1);
    if (layout == "squares") host = i * i % 5;
    hosts.push_back(fmt::format("host {}", host));
  }
  return hosts;
}

TestGroup MakeGroupOn(const std::vector<std::string>& hosts, Backend backend,
                      GroupOptions options) {
  TestGroup group;
  group.listeners = MakeListeners(static_cast<int>(hosts.size()));
  GroupSpec spec = MakeSpec(group.listeners, options);
  spec.backend = backend;
  for (size_t i = 0; i < hosts.size(); ++i) spec.members[i].host_id = hosts[i];
  group.ranks = Form(spec, group.listeners);
  return group;
}

TestGroup MakeGroup(const std::string& backend, int size, GroupOptions options) {
  TestGroup group;
  if (backend == "threads") {
    group.ranks = collective::MakeThreadCommunicators(size, options.timeout);
    return group;
  }
  const bool replicas = backend.starts_with("replicas");
  // Two processes, the first one with more replicas where they cannot be equal.
  const int processes = replicas ? std::min(size, 2) : size;
  group.listeners =
      backend.ends_with("_tls") ? MakeSecureListeners(processes) : MakeListeners(processes);
  GroupSpec spec = MakeSpec(group.listeners, options);
  spec.progress_thread = backend.ends_with("_progress");
  spec.spin = backend.ends_with("_spin");
  spec.backend = backend.find("tcp") != std::string::npos ? Backend::kTcp : Backend::kAuto;
  if (backend == "hierarchical" || backend == "hierarchical_tls") {
    for (int i = 0; i < size; ++i) spec.members[i].host_id = fmt::format("host {}", i % 2);
  } else if (backend == "hierarchical_uneven") {
    for (int i = 0; i < size; ++i) spec.members[i].host_id = fmt::format("host {}", std::min(i, 1));
  }
  group.ranks = Form(spec, group.listeners);
  if (!replicas) return group;
  std::vector<int> per_rank(processes, size / processes);
  per_rank[0] += size % processes;
  std::vector<std::unique_ptr<Communicator>> all;
  for (auto& process : group.ranks) {
    for (auto& replica :
         collective::MakeReplicaCommunicators(std::move(process), per_rank, options.timeout)) {
      all.push_back(std::move(replica));
    }
  }
  group.ranks = std::move(all);
  return group;
}

}  // namespace muster::testing
