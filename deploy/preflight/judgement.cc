#include "deploy/preflight/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "absl/strings/str_join.h"
#include "common/base/peer_text.h"
#include "common/cluster/verdict.h"
#include "common/job/job.h"

namespace muster::preflight {
namespace {

constexpr size_t kWidthOfValue = 60;

// Returns for example "1.2 ms" or "3.1 s".
std::string TimeText(double seconds) {
  if (std::abs(seconds) < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (std::abs(seconds) < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

std::string RateText(double bits_per_second) {
  return fmt::format("{:.3g} Gbit/s", bits_per_second / 1e9);
}

// Returns the value of a dotted key with indices, such as "callbacks[0].name", shortened for a
// message.
std::string ValueOf(const Json& job, std::string_view key) {
  const Json* value = &job;
  while (!key.empty() && value != nullptr) {
    if (key.front() == '[') {
      const size_t index = std::strtoul(std::string(key.substr(1)).c_str(), nullptr, 10);
      value = value->is_array() && index < value->size() ? &(*value)[index] : nullptr;
      key.remove_prefix(std::min(key.find(']'), key.size() - 1) + 1);
      if (key.starts_with('.')) key.remove_prefix(1);
      continue;
    }
    const size_t end = std::min(key.find_first_of(".["), key.size());
    const auto found =
        value->is_object() ? value->find(std::string(key.substr(0, end))) : value->end();
    value = value->is_object() && found != value->end() ? &*found : nullptr;
    key.remove_prefix(end);
    if (key.starts_with('.')) key.remove_prefix(1);
  }
  return value == nullptr ? "not set" : SanitizePeerText(Dump(*value), kWidthOfValue);
}

// Adds a check for the first difference between the job files. Adds "job" to `same` if they are
// equal.
void CompareJobs(const Facts& chief, const Facts& other, std::vector<Check>* checks,
                 std::vector<std::string>* same) {
  const std::string who = TaskText(other.task);
  if (chief.job.is_null() || other.job.is_null()) {
    if (chief.job.is_null() == other.job.is_null()) return;
    const Facts& without = chief.job.is_null() ? chief : other;
    return checks->push_back(
        {.name = "job",
         .what = fmt::format("{} has no job file, so that of {} is not "
                             "compared",
                             TaskText(without.task),
                             TaskText((&without == &chief ? other : chief).task)),
         .fix = "give every task --job",
         .warning = true});
  }
  const std::string key = FirstDifference(chief.job, other.job);
  if (key.empty()) return same->push_back("job");
  constexpr std::string_view kDigests = "digests.";
  if (key.starts_with(kDigests))
    return checks->push_back(
        {.name = "job",
         .ok = false,
         .what = fmt::format("{} has another file than {} for {}", who, TaskText(chief.task),
                             key.substr(kDigests.size())),
         .fix = "copy the same file to all hosts"});
  checks->push_back(
      {.name = "job",
       .ok = false,
       .what = fmt::format("{} has another {} than {}: {}, not {}", who, key, TaskText(chief.task),
                           ValueOf(other.job, key), ValueOf(chief.job, key)),
       .fix = "give all tasks the same job file and --set"});
}

void CompareVersions(const Facts& chief, const Facts& other, std::vector<Check>* checks,
                     std::vector<std::string>* same) {
  bool equal = true;
  for (const auto& [name, version] : other.versions) {
    const auto at = chief.versions.find(name);
    // A host without GPUs has no driver. That is not a difference, because the host may run a ps.
    if (at == chief.versions.end() || at->second == version) continue;
    equal = false;
    // Drivers may differ, and the NCCL found here may not be LibTorch's. All other versions must be
    // equal.
    const bool works = name == "NVIDIA driver" || name == "NCCL";
    checks->push_back({.name = "version",
                       .ok = works,
                       .what = fmt::format("{} has {} {}, {} has {}", TaskText(other.task), name,
                                           version, TaskText(chief.task), at->second),
                       .fix = works
                                  ? "install one version on all hosts, if GPUs behave differently"
                                  : "install one build of Muster, with one LibTorch, on all hosts",
                       .warning = works});
  }
  if (equal) same->push_back("versions");
}

Check ClockCheck(const Facts& chief, const Facts& other, const ClockOffset& clock) {
  const std::string offset =
      fmt::format("{}{} (within {})", clock.seconds < -5e-7 ? "-" : "+",
                  TimeText(std::abs(clock.seconds)), TimeText(clock.uncertainty));
  if (std::abs(clock.seconds) - clock.uncertainty <= kMaxClockOffset)
    return {.name = "clock", .what = offset};
  return {.name = "clock",
          .what = fmt::format("the clock of {} is {} {} that of {}", TaskText(other.task), offset,
                              clock.seconds < 0 ? "behind" : "ahead of", TaskText(chief.task)),
          .fix =
              "synchronize the clocks (chrony, systemd-timesyncd): times in logs and traces of "
              "several hosts do not match",
          .warning = true};
}

// The paths between two tasks.
struct Pair {
  const PathFacts* there = nullptr;
  const PathFacts* back = nullptr;
};

// Checks the MTU of a path. `what` is empty if it has no problem.
Check MtuCheck(const PathFacts& path) {
  const std::string way = fmt::format("from {} to {}", TaskText(path.from), TaskText(path.to));
  if (path.mtu == 0)
    return {.name = "",
            .what = fmt::format("no UDP packet passes {}, so the MTU is unknown", way),
            .fix = "let UDP pass, or ignore this: training uses TCP",
            .warning = true};
  if (path.mtu >= path.own_mtu) return {.name = ""};
  const std::string what = fmt::format(
      "packets of more than {} bytes do not pass {}, and the "
      "interface sends up to {}",
      path.mtu, way, path.own_mtu);
  if (path.reported_mtu <= path.mtu)
    return {.name = "",
            .what = what + "; routers report this to the sender",
            .fix = fmt::format("set the MTU of the interfaces to {}", path.mtu),
            .warning = true};
  return {.name = "",
          .ok = false,
          .what = what + ", and no router reports this to the sender: connections stall",
          .fix = fmt::format("set the MTU of the interfaces to {} (ip link set dev IF mtu {}), let "
                             "ICMP pass, or set net.ipv4.tcp_mtu_probing to 1",
                             path.mtu, path.mtu)};
}

Check SpeedCheck(const PathFacts& path, double usual) {
  if (path.bits_per_second >= kSlowShare * usual) return {.name = ""};
  return {.name = "",
          .what = fmt::format("slow from {} to {}: {} percent of the {} of other pairs",
                              TaskText(path.from), TaskText(path.to),
                              std::lround(100 * path.bits_per_second / usual), RateText(usual)),
          .fix =
              "look at the cable, the speed of the interface (ethtool), the switch port, and what "
              "else uses the link",
          .warning = true};
}

std::string Measured(const Pair& pair) {
  std::vector<std::string> mtus, rates;
  double round_trip = 0;
  for (const PathFacts* path : {pair.there, pair.back}) {
    if (path == nullptr || !path->problem.empty()) continue;
    mtus.push_back(path->mtu == 0 ? "?" : std::to_string(path->mtu));
    rates.push_back(fmt::format("{:.3g}", path->bits_per_second / 1e9));
    round_trip = round_trip == 0 ? path->round_trip : std::min(round_trip, path->round_trip);
  }
  if (mtus.empty()) return "not measured";
  return fmt::format("MTU {}, {} Gbit/s, round trip {}", absl::StrJoin(mtus, " and "),
                     absl::StrJoin(rates, " and "), TimeText(round_trip));
}

Check OwnMtuCheck(const Pair& pair) {
  if (pair.there == nullptr || pair.back == nullptr || pair.there->own_mtu == 0 ||
      pair.back->own_mtu == 0 || pair.there->own_mtu == pair.back->own_mtu)
    return {.name = ""};
  return {.name = "",
          .what = fmt::format("the interface of {} has MTU {}, that of {} {}",
                              TaskText(pair.there->from), pair.there->own_mtu,
                              TaskText(pair.back->from), pair.back->own_mtu),
          .fix = "give all interfaces one MTU",
          .warning = true};
}

// Adds a finding to the check of a pair.
void Add(const Check& found, Check* all) {
  if (found.what.empty()) return;
  all->what += "; " + found.what;
  // Keep the fix of the worst finding, or of the first one if they are equal.
  if (all->fix.empty() || (all->ok && !found.ok)) all->fix = found.fix;
  if (!found.ok) all->configuration = (all->ok || all->configuration) && found.configuration;
  all->ok = all->ok && found.ok;
  all->warning = all->ok && (all->warning || found.warning);
}

Check PairCheck(const Pair& pair, double usual) {
  const PathFacts& first = pair.there != nullptr ? *pair.there : *pair.back;
  Check all{.name = fmt::format("{}, {}", TaskText(first.from), TaskText(first.to)),
            .what = Measured(pair)};
  for (const PathFacts* path : {pair.there, pair.back}) {
    if (path == nullptr) continue;
    if (path->problem.empty()) {
      Add(MtuCheck(*path), &all);
      Add(SpeedCheck(*path, usual), &all);
      continue;
    }
    Add({.name = "",
         .ok = false,
         .what = fmt::format("{} cannot reach the data address of {}: {}", TaskText(path->from),
                             TaskText(path->to), path->problem),
         .fix = "look at collective.interface, and for a firewall: data connections use ports that "
                "the kernel chooses",
         .configuration = false},
        &all);
  }
  Add(OwnMtuCheck(pair), &all);
  return all;
}

// Returns the first task of each host and data address. Leaves out evaluators, which have no data
// connections.
std::vector<const Facts*> OnePerHost(const std::vector<Facts>& tasks) {
  std::vector<const Facts*> chosen;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Facts& task : tasks)
    if (!task.task.starts_with("evaluator") && !task.data_address.empty() &&
        seen.insert({task.host_id, task.data_address}).second)
      chosen.push_back(&task);
  return chosen;
}

}  // namespace

std::vector<Check> CompareFacts(const Facts& chief, const Facts& other, const ClockOffset& clock) {
  std::vector<Check> checks;
  std::vector<std::string> same;
  CompareJobs(chief, other, &checks, &same);
  CompareVersions(chief, other, &checks, &same);
  const Check time = ClockCheck(chief, other, clock);
  if (time.warning) checks.push_back(time);
  Check sum{.name = TaskText(other.task)};
  if (!same.empty())
    sum.what = fmt::format("same {} as {}; ", absl::StrJoin(same, " and "), TaskText(chief.task));
  if (!time.warning) sum.what += fmt::format("clock {}, ", time.what);
  sum.what +=
      fmt::format("data address {}", other.data_address.empty() ? "unknown" : other.data_address);
  checks.insert(checks.begin(), sum);
  for (Check check : other.checks) {
    check.name = fmt::format("{}, {}", TaskText(other.task), check.name);
    checks.push_back(std::move(check));
  }
  return checks;
}

std::vector<std::vector<Path>> Rounds(const std::vector<Facts>& tasks) {
  std::vector<const Facts*> hosts = OnePerHost(tasks);
  // The circle method of round-robin tournaments: one element is fixed and the others rotate. The
  // elements at opposite positions form a pair.
  if (hosts.size() % 2 == 1) hosts.push_back(nullptr);
  std::vector<std::vector<Path>> rounds;
  for (size_t round = 0; round + 1 < hosts.size(); ++round) {
    std::vector<Path> there, back;
    for (size_t i = 0; i < hosts.size() / 2; ++i) {
      const Facts *a = hosts[i], *b = hosts[hosts.size() - 1 - i];
      if (a == nullptr || b == nullptr || a->host_id == b->host_id) continue;
      there.push_back({a->task, b->task});
      back.push_back({b->task, a->task});
    }
    for (auto& paths : {there, back})
      if (!paths.empty()) rounds.push_back(paths);
    std::rotate(hosts.begin() + 1, hosts.end() - 1, hosts.end());
  }
  return rounds;
}

double UsualRate(const std::vector<PathFacts>& paths) {
  std::vector<double> rates;
  for (const PathFacts& path : paths)
    if (path.problem.empty()) rates.push_back(path.bits_per_second);
  if (rates.empty()) return 0;
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() <= 6 ? rates.size() * 3 / 4 : rates.size() / 2];
}

std::vector<Check> JudgePaths(const std::vector<PathFacts>& paths) {
  constexpr size_t kMostPairs = 28;
  std::map<std::set<std::string>, Pair> pairs;
  for (const PathFacts& path : paths) {
    Pair& pair = pairs[{path.from, path.to}];
    (pair.there == nullptr ? pair.there : pair.back) = &path;
  }
  const double usual = UsualRate(paths);
  std::vector<Check> checks;
  for (const auto& [tasks, pair] : pairs) {
    Check check = PairCheck(pair, usual);
    if (pairs.size() <= kMostPairs || !check.ok || check.warning)
      checks.push_back(std::move(check));
  }
  if (pairs.size() > kMostPairs)
    checks.push_back({.name = "all pairs",
                      .what = fmt::format("{} measured, usually {}; {} with a problem",
                                          pairs.size(), RateText(usual), checks.size())});
  return checks;
}

}  // namespace muster::preflight
