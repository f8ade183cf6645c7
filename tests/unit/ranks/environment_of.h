// Recorded environments, written as `env` prints them.
#pragma once

#include <map>
#include <sstream>
#include <string>

#include "common/cluster/cluster_config.h"
#include "deploy/ranks/ranks.h"

namespace muster::ranks {

// One NAME=value a line, or several in a line without spaces in their values. A later one counts.
inline Environment EnvironmentOf(const std::string& text) {
  std::map<std::string, std::string> variables;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    variables[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

// "host:port" by rank.
inline std::vector<std::string> Addresses(const Ranks& ranks) {
  std::vector<std::string> texts;
  for (const Address& address : ranks.addresses) texts.push_back(address.ToString());
  return texts;
}

}  // namespace muster::ranks
