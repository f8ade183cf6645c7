#include "deploy/hosts/ssh_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "deploy/launcher/shell_word.h"

namespace muster::hosts {
namespace {

using Words = std::vector<std::string>;

// ssh uses the first value of an option. These options follow the user's words, so the user's
// options take precedence.
constexpr const char* kOptions[] = {
    "BatchMode=yes",           // Never waits for a password.
    "ConnectTimeout=10",       // Seconds.
    "ServerAliveInterval=10",  // A dead link is found after three of these.
    "ServerAliveCountMax=3",
    "RemoteCommand=none",  // Overrides the user's, which excludes a command.
    "ClearAllForwardings=yes",
};

Words Session(const Words& ssh, const Words& options, const std::string& target,
              const std::string& command) {
  Words words = ssh;
  for (const char* option : kOptions) words.insert(words.end(), {"-o", option});
  for (const std::string& option : options) words.insert(words.end(), {"-o", option});
  words.insert(words.end(), {"-T", "-x", "--", target, command});
  return words;
}

}  // namespace

absl::StatusOr<Words> SplitCommand(const std::string& text) {
  Words words;
  std::string word;
  bool inside = false;  // Inside a word, which may be empty.
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      inside = true;
    } else if (quote != 0) {
      word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t') {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0)
    return ConfigurationError(fmt::format("--ssh is \"{}\", which has an open {}", text, quote));
  if (inside) words.push_back(word);
  if (words.empty()) return ConfigurationError("--ssh is empty: give a command, as in --ssh ssh");
  return words;
}

Words FirstSession(const Words& ssh, const std::string& control, const std::string& target,
                   const std::string& command) {
  return Session(ssh, {"ControlMaster=yes", "ControlPersist=no", "ControlPath=" + control}, target,
                 command);
}

Words FurtherSession(const Words& ssh, const std::string& control, const std::string& target,
                     const std::string& command) {
  return Session(ssh, {"ControlMaster=no", "ControlPath=" + control}, target, command);
}

Words PrintConfiguration(const Words& ssh, const std::string& target) {
  Words words = ssh;
  words.insert(words.end(), {"-G", "--", target});
  return words;
}

std::string HostNameIn(std::string_view configuration) {
  constexpr std::string_view kKey = "hostname ";
  while (!configuration.empty()) {
    const std::string_view line = configuration.substr(0, configuration.find('\n'));
    if (line.starts_with(kKey)) return std::string(line.substr(kKey.size()));
    configuration.remove_prefix(std::min(line.size() + 1, configuration.size()));
  }
  return "";
}

std::string ShellCommand() {
  return fmt::format("exec sh -c {}",
                     launcher::ShellWord(fmt::format(
                         "echo {} && IFS= read -r line && eval \"$line\"", kShellReady)));
}

std::string StartLine(const std::string& folder, const std::string& muster,
                      const std::string& launch) {
  const std::string program = launcher::ShellWord(muster);
  return fmt::format("cd {0} && echo \"{1}$({2} --version </dev/null)\" && exec {2} run-tasks {3}",
                     folder, kVersionIs, program, launch);
}

absl::Status CannotConnect(const std::string& target, std::string_view message) {
  const std::string text = fmt::format("{}: ssh cannot connect: {}", target, message);
  constexpr std::string_view kPassing[] = {
      "Connection refused", "timed out",          "Connection closed",
      "Connection reset",   "No route to host",   "Network is unreachable",
      "Temporary failure",  "kex_exchange_ident", "Connection to"};
  for (const std::string_view words : kPassing)
    if (message.find(words) != std::string_view::npos) return PeerLost(text);
  return ConfigurationError(text);
}

}  // namespace muster::hosts
