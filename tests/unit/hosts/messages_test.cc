#include "deploy/hosts/messages.h"

#include <gmock/gmock.h>

#include <csignal>

#include "deploy/launcher/processes/lines.h"

namespace muster::hosts {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Returns the message as the other side reads it.
Json Sent(const Json& message, const std::string& key) {
  return ParseJson(Dump(message), "test").value().at(key);
}

TEST(Messages, ComeBackAsTheyWere) {
  const auto start = StartRequestFrom(Sent(
      ToJson(StartRequest{3, {"bin/muster-worker", "--job", "a b"}, {{"A", "1\n2"}}, "key\n", "r"}),
      "start"));
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->task, 3);
  EXPECT_THAT(start->arguments, ElementsAre("bin/muster-worker", "--job", "a b"));
  EXPECT_THAT(start->environment, ElementsAre(Pair("A", "1\n2")));
  EXPECT_EQ(start->key, "key\n");
  EXPECT_EQ(start->result, "r");

  Ended killed;
  killed.task = 1;
  killed.report.code = 128 + SIGKILL;
  killed.report.signal = SIGKILL;
  const auto without = EndedFrom(Sent(ToJson(killed), "ended"));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->result.is_null());
  killed.result = {{"steps", 5}};
  const auto ended = EndedFrom(Sent(ToJson(killed), "ended"));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->report.code, 137);
  EXPECT_EQ(ended->report.signal, SIGKILL);
  EXPECT_EQ(ended->result.at("steps"), 5);

  const auto prepared =
      PreparedFrom(Sent(ToJson(Prepared{{10000, 10001}, {"GPU-1"}, "x"}), "prepared"));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(prepared->ports, ElementsAre(10000, 10001));
  EXPECT_THAT(prepared->gpus, ElementsAre("GPU-1"));
  EXPECT_EQ(prepared->error, "x");

  EXPECT_EQ(StartedFrom(Sent(ToJson(Started{2, 77}), "started"))->pid, 77);
  EXPECT_EQ(SignalRequestFrom(Sent(ToJson(SignalRequest{2, SIGTERM}), "signal"))->signal, SIGTERM);
  EXPECT_EQ(SuspendRequestFrom(Sent(ToJson(SuspendRequest{60}), "suspend"))->seconds, 60);
  EXPECT_THAT(ReserveRequestFrom(Sent(ToJson(ReserveRequest{{10000, 10001}}), "reserve"))->ports,
              ElementsAre(10000, 10001));
  EXPECT_TRUE(PrepareRequestFrom(Sent(ToJson(PrepareRequest{4, true}), "prepare"))->gpus);
}

TEST(Messages, WrongOnesAreRefused) {
  EXPECT_FALSE(StartRequestFrom({{"task", 0}}).ok());  // Without a program.
  EXPECT_FALSE(StartRequestFrom({{"task", -1}, {"arguments", {"a"}}}).ok());
  EXPECT_FALSE(
      StartRequestFrom({{"task", 0}, {"arguments", {"a"}}, {"environment", {{"A", 1}}}}).ok());
  EXPECT_FALSE(PreparedFrom({{"ports", {70000}}}).ok());
  EXPECT_FALSE(EndedFrom({{"task", "x"}}).ok());
  EXPECT_FALSE(SignalRequestFrom(Json::array()).ok());
  EXPECT_FALSE(SuspendRequestFrom({{"seconds", -1}}).ok());
}

TEST(TaskLines, KeepTheTextOfATask) {
  std::string sent;
  AppendTaskLine({'e', 12, "{a} \xff b"}, &sent);
  AppendTaskLine({'o', 0, ""}, &sent);
  const std::string progress(100'000, 'x');  // JSON, which must come whole.
  AppendTaskLine({'p', 1, progress}, &sent);
  std::vector<std::string> texts;
  launcher::LineSplitter lines(kLongestMessage);
  lines.Append(sent, [&](std::string_view line) {
    const auto parsed = ParseTaskLine(line);
    ASSERT_TRUE(parsed) << line.substr(0, 20);
    texts.push_back(parsed->kind + std::to_string(parsed->task) + std::string(parsed->text));
  });
  EXPECT_THAT(texts, ElementsAre("e12{a} \xff b", "o0", "p1" + progress));
  for (const char* other : {"", "{\"ended\":{}}", "o", "o1", "ox y", "x1 y", "Connection closed"})
    EXPECT_FALSE(ParseTaskLine(other)) << other;
}

}  // namespace
}  // namespace muster::hosts
