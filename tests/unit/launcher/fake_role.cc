// Stands in for muster-chief, muster-worker, ...: does what the script `<role>-<index>` in the
// folder FAKE_SCRIPTS says, one command a line; then it exits with 0. A line that is no command
// ends it with 97. A SIGNAL is a number.
//   out TEXT | err TEXT      a line        raw TEXT      without a newline
//   env NAME                 the variable  args          the arguments
//   progress TEXT            a line on MUSTER_PROGRESS_FD
//   on SIGNAL CODE           writes "exits with CODE at signal SIGNAL" and exits when it comes
//   ignore SIGNAL            wait          for signals, for ever
//   pid                      writes "pid <number>"
//   flood COUNT              that many long lines
//   spawn                    a child that ignores SIGTERM, in the same process group; says its pid
//   exit CODE                kill SIGNAL   itself
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "muster/json.h"

namespace {

constexpr int kBadScript = 97;

volatile sig_atomic_t exit_codes[65];
std::string last_lines[65];

void Exit(int signal) {
  const std::string& line = last_lines[signal];
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) _exit(kBadScript);
  _exit(exit_codes[signal]);
}

void Spawn() {
  const auto before = std::signal(SIGTERM, SIG_IGN);
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  std::signal(SIGTERM, before);
  std::cout << "pid " << pid << std::endl;
}

// Returns false if this is no command of a script.
bool Do(const std::string& command, std::istringstream& rest, int argc, char** argv) {
  std::string text;
  int number = 0, code = 0;
  if (command == "out" || command == "err" || command == "raw" || command == "progress") {
    std::getline(rest >> std::ws, text);
    if (command == "out") std::cout << text << std::endl;
    if (command == "err") std::cerr << text << std::endl;
    if (command == "raw") std::cout << text << std::flush;
    if (command == "progress") {
      text += '\n';
      const int fd = std::atoi(std::getenv("MUSTER_PROGRESS_FD"));
      if (write(fd, text.data(), text.size()) < 0) std::perror("progress");
    }
  } else if (command == "env" && rest >> text) {
    const char* value = std::getenv(text.c_str());
    std::cout << text << "=" << (value != nullptr ? value : "(unset)") << std::endl;
  } else if (command == "args") {
    for (int i = 1; i < argc; ++i) std::cout << (i > 1 ? " " : "") << argv[i];
    std::cout << std::endl;
  } else if (command == "on" && rest >> number >> code) {
    exit_codes[number] = code;
    last_lines[number] =
        "exits with " + std::to_string(code) + " at signal " + std::to_string(number) + '\n';
    std::signal(number, Exit);
  } else if (command == "ignore" && rest >> number) {
    std::signal(number, SIG_IGN);
  } else if (command == "wait") {
    while (true) pause();
  } else if (command == "pid") {
    std::cout << "pid " << getpid() << std::endl;
  } else if (command == "flood" && rest >> number) {
    for (int i = 0; i < number; ++i) std::cout << i << ' ' << std::string(200, 'x') << '\n';
    std::cout << std::flush;
  } else if (command == "spawn") {
    Spawn();
  } else if (command == "exit" && rest >> code) {
    _exit(code);
  } else if (command == "kill" && rest >> number) {
    raise(number);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const muster::Json task = muster::Json::parse(std::getenv("TF_CONFIG")).at("task");
  std::ifstream script(std::string(std::getenv("FAKE_SCRIPTS")) + "/" +
                       task.at("type").get<std::string>() + "-" +
                       std::to_string(task.at("index").get<int>()));
  for (std::string line; std::getline(script, line);) {
    std::istringstream rest(line);
    std::string command;
    rest >> command;
    if (Do(command, rest, argc, argv)) continue;
    std::cerr << "fake_role: no command: " << line << std::endl;
    _exit(kBadScript);
  }
  return 0;
}
