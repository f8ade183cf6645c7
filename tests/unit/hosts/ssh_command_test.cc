#include "deploy/hosts/ssh_command.h"

#include <gmock/gmock.h>

namespace muster::hosts {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Words(const std::string& text) {
  const auto words = SplitCommand(text);
  return words.ok() ? *words : std::vector<std::string>{std::string(Message(words.status()))};
}

TEST(SplitCommand, GroupsQuotedWords) {
  EXPECT_THAT(Words("ssh -p 2222  -F 'my config'"),
              ElementsAre("ssh", "-p", "2222", "-F", "my config"));
  EXPECT_THAT(Words(R"(ssh "-o ProxyCommand=a \"b\"" c\ d '')"),
              ElementsAre("ssh", "-o ProxyCommand=a \"b\"", "c d", ""));
  EXPECT_THAT(Words("ssh 'a"), ElementsAre("--ssh is \"ssh 'a\", which has an open '"));
  EXPECT_THAT(Words("  "), ElementsAre("--ssh is empty: give a command, as in --ssh ssh"));
}

// ssh takes the first value of an option, so the user's comes first.
TEST(Sessions, TheUsersWordsComeFirstAndTheHostIsNoOption) {
  const auto first = FirstSession({"ssh", "-o", "BatchMode=no"}, "s", "h1", "true");
  EXPECT_THAT(std::vector(first.begin(), first.begin() + 5),
              ElementsAre("ssh", "-o", "BatchMode=no", "-o", "BatchMode=yes"));
  EXPECT_THAT(std::vector(first.end() - 3, first.end()), ElementsAre("--", "h1", "true"));
  EXPECT_THAT(first, Contains("ControlMaster=yes"));
  EXPECT_THAT(first, Contains("ControlPath=s"));
  const auto further = FurtherSession({"ssh"}, "s", "h1", "true");
  EXPECT_THAT(further, Contains("ControlPath=s"));
  EXPECT_THAT(further, Not(Contains("ControlMaster=yes")));
}

TEST(HostNameIn, IsTheOneToWhichSshConnects) {
  EXPECT_EQ(HostNameIn("user me\nhostname 10.0.0.1\nport 22\n"), "10.0.0.1");
  EXPECT_EQ(HostNameIn("user me\n"), "");
  EXPECT_EQ(HostNameIn(""), "");
}

TEST(StartLine, QuotesTheProgram) {
  EXPECT_EQ(StartLine("'my folder'", "my bin/muster", "ab"),
            "cd 'my folder' && echo \"muster-version $('my bin/muster' --version </dev/null)\" && "
            "exec 'my bin/muster' run-tasks ab");
}

TEST(CannotConnect, SaysWhetherAnotherAttemptCanHelp) {
  for (const char* text : {"ssh: connect to host h1 port 22: Connection refused",
                           "ssh: connect to host h1 port 22: Connection timed out",
                           "kex_exchange_identification: Connection closed by remote host",
                           "ssh: connect to host h1 port 22: No route to host"})
    EXPECT_EQ(ExitCodeOf(CannotConnect("h1", text)), ExitCode::kRetryable) << text;
  for (const char* text : {"me@h1: Permission denied (publickey).", "Host key verification failed.",
                           "ssh: Could not resolve hostname h1: Name or service not known"})
    EXPECT_EQ(ExitCodeOf(CannotConnect("h1", text)), ExitCode::kConfiguration) << text;
  EXPECT_THAT(std::string(Message(CannotConnect("h1", "x"))),
              HasSubstr("h1: ssh cannot connect: x"));
}

}  // namespace
}  // namespace muster::hosts
