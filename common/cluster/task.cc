#include "common/cluster/task.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "absl/strings/ascii.h"

namespace muster {
namespace {

std::optional<int> ParseDigits(std::string_view text) {
  if (text.empty() || text.front() == '-') return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsIpv4(const std::string& host) {
  in_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1;
}

bool IsIpv6(std::string host) {
  in6_addr ignored;
  if (const size_t zone = host.find('%'); zone != std::string::npos) host.resize(zone);
  return inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

bool IsHostName(const std::string& host) {
  if (host.empty() || host.size() > 253 || host.front() == '-' || host.front() == '.') return false;
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '.' || c == '_';
  };
  if (!std::all_of(host.begin(), host.end(), fits)) return false;
  // A host of digits and dots must be an IPv4 address. 10.0.0.300 is invalid.
  const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return !numeric || IsIpv4(host);
}

}  // namespace

std::string_view TaskTypeName(TaskType type) {
  switch (type) {
    case TaskType::kChief:
      return "chief";
    case TaskType::kWorker:
      return "worker";
    case TaskType::kPs:
      return "ps";
    case TaskType::kEvaluator:
      return "evaluator";
  }
  return "?";
}

std::optional<TaskType> TaskTypeFromName(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  if (lower == "master") return TaskType::kChief;
  for (const TaskType type : kAllTaskTypes) {
    if (TaskTypeName(type) == lower) return type;
  }
  return std::nullopt;
}

std::string TaskId::ToString() const { return fmt::format("{}:{}", TaskTypeName(type), index); }
std::string TaskId::DisplayName() const { return fmt::format("{} {}", TaskTypeName(type), index); }

std::optional<TaskId> ParseTaskId(std::string_view text) {
  const size_t separator = text.find_first_of(": ");
  if (separator == std::string_view::npos || separator + 1 == text.size()) return std::nullopt;
  const auto type = TaskTypeFromName(text.substr(0, separator));
  const auto index = ParseDigits(text.substr(separator + 1));
  if (!type || !index) return std::nullopt;
  return TaskId{*type, *index};
}

std::string Address::ToString() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string Address::Key() const { return absl::AsciiStrToLower(ToString()); }

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    return ConfigurationError("has a scheme: write host:port without it");
  }
  std::string host;
  std::string_view port;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos || !IsIpv6(std::string(text.substr(1, close - 1)))) {
      return ConfigurationError("has no IPv6 address in its brackets: write [2001:db8::1]:2222");
    }
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (port.size() < 2 || port.front() != ':') {
      return ConfigurationError(fmt::format("has no port: write [{}]:2222", host));
    }
    port.remove_prefix(1);
  } else {
    const size_t colon = text.find(':');
    if (colon != text.rfind(':')) {
      return ConfigurationError(
          "has more than one colon: write an IPv6 address in brackets, [2001:db8::1]:2222");
    }
    host = text.substr(0, colon);
    if (!IsHostName(host)) {
      return ConfigurationError("has no valid host name or IP address: write host:port");
    }
    if (colon == std::string_view::npos || colon + 1 == text.size()) {
      return ConfigurationError(fmt::format("has no port: write {}:2222", host));
    }
    port = text.substr(colon + 1);
  }
  if (port.find_first_not_of("0123456789") != std::string_view::npos) {
    return ConfigurationError("has a port that is not a number: write one from 1 to 65535");
  }
  const auto number = ParseDigits(port);
  if (!number || *number < 1 || *number > 65535) {
    return ConfigurationError("has a port out of range: write one from 1 to 65535");
  }
  return Address{std::move(host), *number};
}

bool IsLoopback(const Address& address) {
  const std::string host = absl::AsciiStrToLower(address.host);
  return host == "localhost" || host == "::1" || (IsIpv4(host) && host.rfind("127.", 0) == 0);
}

}  // namespace muster
