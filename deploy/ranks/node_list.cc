#include "deploy/ranks/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace muster::ranks {
namespace {

absl::Status TooLong() {
  return ConfigurationError(fmt::format("has more than {} elements", kMaxRanks));
}

// Returns a part of the list, shortened for a message.
std::string Shown(std::string_view part) {
  constexpr size_t kShown = 40;
  return part.size() <= kShown ? std::string(part) : std::string(part.substr(0, kShown)) + "...";
}

std::optional<int> Number(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional<int>(value) : std::nullopt;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Splits at commas outside brackets.
absl::StatusOr<std::vector<std::string_view>> SplitNames(std::string_view text) {
  std::vector<std::string_view> names;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == ']') {
      if ((text[i] == '[') == inside)
        return ConfigurationError(fmt::format("has a bracket too many at character {}", i + 1));
      inside = !inside;
    } else if (text[i] == ',' && !inside) {
      names.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (inside) return ConfigurationError("has a bracket that is not closed");
  names.push_back(text.substr(begin));
  return names;
}

struct Range {
  int low = 0, high = 0;
  size_t width = 0;  // Digits of the low bound, as written.
};

absl::StatusOr<Range> ParseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::optional<int> low = Number(first);
  const std::optional<int> high =
      dash == std::string_view::npos ? low : Number(text.substr(dash + 1));
  if (!low || !high)
    return ConfigurationError(
        fmt::format("has \"{}\" where a range of numbers belongs", Shown(text)));
  if (*high < *low)
    return ConfigurationError(
        fmt::format("has the range \"{}\", which ends before it begins", Shown(text)));
  if (*high - *low >= kMaxRanks) return TooLong();
  return Range{*low, *high, first.size()};
}

// "08-10,2" -> "08", "09", "10", "2".
absl::StatusOr<std::vector<std::string>> ExpandRanges(std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string_view part : Split(text, ",")) {
    MUSTER_ASSIGN_OR_RETURN(const Range range, ParseRange(part));
    if (numbers.size() + static_cast<size_t>(range.high - range.low) >= kMaxRanks) return TooLong();
    for (int i = range.low; i <= range.high; ++i)
      numbers.push_back(fmt::format("{:0{}}", i, range.width));
  }
  return numbers;
}

// "rack[0-1]n[1-2]" -> rack0n1, rack0n2, rack1n1, rack1n2.
absl::StatusOr<std::vector<std::string>> ExpandName(std::string_view name) {
  if (name.empty()) return ConfigurationError("has an empty name");
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    for (std::string& each : names) each += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = name.find(']', open);
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                            ExpandRanges(name.substr(open + 1, close - open - 1)));
    if (names.size() * numbers.size() > kMaxRanks) return TooLong();
    std::vector<std::string> longer;
    for (const std::string& each : names)
      for (const std::string& number : numbers) longer.push_back(each + number);
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

absl::StatusOr<HostSlots> ParseHost(std::string_view text) {
  HostSlots host;
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos)
      return ConfigurationError("has a bracket that is not closed");
    host.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    host.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (host.host.empty()) return ConfigurationError("has an empty name");
  if (rest.empty()) return host;
  const std::optional<int> slots = rest.front() == ':' ? Number(rest.substr(1)) : std::nullopt;
  if (!slots || *slots < 1 || *slots > kMaxRanks) {
    return ConfigurationError(fmt::format(
        "has \"{}\", whose number of processes is invalid: write host:4, without a port",
        Shown(text)));
  }
  host.slots = *slots;
  return host;
}

// "a", "a:4", or "a slots=4 max_slots=8".
absl::StatusOr<HostSlots> ParseHostLine(std::string_view line) {
  const std::vector<std::string_view> words = Split(line, " \t");
  MUSTER_ASSIGN_OR_RETURN(HostSlots host, ParseHost(words.front()));
  for (const std::string_view word : words) {
    if (!word.starts_with("slots=")) continue;
    const std::optional<int> slots = Number(word.substr(6));
    if (!slots || *slots < 1 || *slots > kMaxRanks)
      return ConfigurationError(
          fmt::format("has \"{}\", which is not a number of processes", Shown(word)));
    host.slots = *slots;
  }
  return host;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseNodeList(std::string_view text) {
  std::vector<std::string> nodes;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string_view> names, SplitNames(text));
  for (const std::string_view name : names) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> expanded, ExpandName(name));
    if (nodes.size() + expanded.size() > kMaxRanks) return TooLong();
    nodes.insert(nodes.end(), expanded.begin(), expanded.end());
  }
  return nodes;
}

absl::StatusOr<std::vector<int>> ParseTaskCounts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string_view part : Split(text, ",")) {
    const size_t open = part.find("(x");
    const std::optional<int> count = Number(part.substr(0, open));
    std::optional<int> repeat = 1;
    if (open != std::string_view::npos) {
      repeat = part.ends_with(')') ? Number(part.substr(open + 2, part.size() - open - 3))
                                   : std::nullopt;
    }
    if (!count || !repeat || *repeat < 1)
      return ConfigurationError(
          fmt::format("has \"{}\" where a count such as 2(x3) belongs", Shown(part)));
    if (counts.size() + static_cast<size_t>(*repeat) > kMaxRanks || *count > kMaxRanks)
      return TooLong();
    counts.insert(counts.end(), static_cast<size_t>(*repeat), *count);
  }
  return counts;
}

absl::StatusOr<std::vector<int>> ParsePortList(std::string_view text) {
  std::vector<int> ports;
  for (const std::string_view part : Split(text, ",")) {
    MUSTER_ASSIGN_OR_RETURN(const Range range, ParseRange(part));
    if (range.low < 1 || range.high > 65535)
      return ConfigurationError(
          fmt::format("has \"{}\", which is outside of 1 to 65535", Shown(part)));
    if (ports.size() + static_cast<size_t>(range.high - range.low) >= kMaxRanks) return TooLong();
    for (int port = range.low; port <= range.high; ++port) ports.push_back(port);
  }
  return ports;
}

absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (const std::string_view line : Split(text, "\n")) {
    for (const std::string_view part : Split(line.substr(0, line.find('#')), ",")) {
      const std::string_view trimmed = Trimmed(part);
      if (trimmed.empty()) continue;
      MUSTER_ASSIGN_OR_RETURN(HostSlots host, ParseHostLine(trimmed));
      if (hosts.size() == kMaxRanks) return TooLong();
      if (!hosts.empty() && hosts.back().host == host.host) {
        hosts.back().slots = std::max(hosts.back().slots, 1) + std::max(host.slots, 1);
      } else {
        hosts.push_back(std::move(host));
      }
    }
  }
  if (hosts.empty()) return ConfigurationError("names no host");
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& value) {
  std::string list = value;
  std::error_code error;
  if (std::filesystem::is_regular_file(value, error)) {
    std::stringstream file;
    file << std::ifstream(value).rdbuf();
    list = file.str();
  } else if (value.find('/') != std::string::npos) {
    return ConfigurationError(fmt::format("--hosts is \"{}\", which is not a file", value));
  }
  absl::StatusOr<std::vector<HostSlots>> hosts = ParseHosts(list);
  if (hosts.ok()) return hosts;
  return ConfigurationError(
      fmt::format("--hosts is \"{}\", which {}", value, Message(hosts.status())));
}

}  // namespace muster::ranks
