#include "common/telemetry/system_stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "common/base/files/fd.h"

namespace muster {
namespace {

constexpr double kWindowSeconds = 5;

// Returns the content of a file in /proc, "" if it cannot be read.
std::string ReadProc(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece;
  while (fd && text.size() < (64 << 10)) {
    const ssize_t got = read(fd.get(), piece.data(), piece.size());
    if (got <= 0) break;
    text.append(piece.data(), got);
  }
  return text;
}

// Splits at white space.
std::vector<std::string_view> Words(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  std::vector<std::string_view> words;
  size_t at = text.find_first_not_of(kSpace);
  while (at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return words;
}

std::optional<int64_t> Number(std::string_view word) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

}  // namespace

void AddTo(const SystemStats& system, proto::TaskStats* stats) {
  stats->set_cpu_seconds(system.cpu_seconds);
  stats->set_cpu_cores(system.cpu_cores);
  stats->set_rss_bytes(system.rss_bytes);
  stats->set_network_sent_bytes(system.network_sent_bytes);
  stats->set_network_received_bytes(system.network_received_bytes);
  for (const proto::GpuStats& gpu : system.gpus) *stats->add_gpus() = gpu;
}

std::optional<double> CpuSecondsOf(std::string_view text) {
  // The second field is the program's name in parentheses. The name may contain spaces and
  // parentheses.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> words = Words(text.substr(name_end + 1));
  constexpr size_t kUser = 11, kSystem = 12;  // Fields 14 and 15 of proc(5).
  if (words.size() <= kSystem) return std::nullopt;
  const std::optional<int64_t> user = Number(words[kUser]), system = Number(words[kSystem]);
  if (!user || !system) return std::nullopt;
  return static_cast<double>(*user + *system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::optional<int64_t> RssBytesOf(std::string_view text) {
  const std::vector<std::string_view> words = Words(text);
  const std::optional<int64_t> pages = words.size() > 1 ? Number(words[1]) : std::nullopt;
  if (!pages) return std::nullopt;
  return *pages * sysconf(_SC_PAGESIZE);
}

std::pair<int64_t, int64_t> NetworkBytesOf(std::string_view text) {
  int64_t sent = 0, received = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;  // A header line.
    const std::vector<std::string_view> name = Words(line.substr(0, colon));
    const std::vector<std::string_view> words = Words(line.substr(colon + 1));
    if (name.size() != 1 || name[0] == "lo" || words.size() < 9) continue;
    received += Number(words[0]).value_or(0);
    sent += Number(words[8]).value_or(0);
  }
  return {sent, received};
}

SystemStats SystemSampler::Sample(MonotonicTime now) {
  SystemStats stats;
  stats.cpu_seconds = CpuSecondsOf(ReadProc("/proc/self/stat")).value_or(0);
  stats.rss_bytes = RssBytesOf(ReadProc("/proc/self/statm")).value_or(0);
  std::tie(stats.network_sent_bytes, stats.network_received_bytes) =
      NetworkBytesOf(ReadProc("/proc/self/net/dev"));
  cpu_.emplace_back(now, stats.cpu_seconds);
  while (cpu_.size() > 2 && Seconds(now - cpu_[1].first) >= kWindowSeconds) cpu_.pop_front();
  const double seconds = Seconds(now - cpu_.front().first);
  if (seconds > 0) stats.cpu_cores = (stats.cpu_seconds - cpu_.front().second) / seconds;
  if (gpus_ != nullptr) stats.gpus = gpus_->Read();
  return stats;
}

}  // namespace muster
