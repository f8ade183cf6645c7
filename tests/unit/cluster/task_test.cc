#include "common/cluster/task.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(TaskId, IsReadInBothSpellings) {
  const TaskId worker{TaskType::kWorker, 1};
  EXPECT_EQ(worker.ToString(), "worker:1");
  EXPECT_EQ(worker.DisplayName(), "worker 1");
  EXPECT_EQ(ParseTaskId("worker:1"), worker);
  EXPECT_EQ(ParseTaskId("worker 1"), worker);
  EXPECT_EQ(ParseTaskId("Master:0"), (TaskId{TaskType::kChief, 0}));
}

TEST(TaskId, RefusesWhatIsNone) {
  for (const char* text : {"", "worker", "worker:", ":1", "worker:-1", "worker:x", "worker:1 ",
                           "wroker:1", "worker:1:2", "worker:99999999999"}) {
    EXPECT_EQ(ParseTaskId(text), std::nullopt) << text;
  }
}

struct AddressCase {
  const char* text;
  const char* host;
  int port;
  const char* printed;
};

TEST(Address, AcceptsNamesAndNumbers) {
  const AddressCase cases[] = {
      {"host:2222", "host", 2222, "host:2222"},
      {"mnist-worker-0.default.svc:2222", "mnist-worker-0.default.svc", 2222,
       "mnist-worker-0.default.svc:2222"},
      {"a_b.c.:1", "a_b.c.", 1, "a_b.c.:1"},
      {"10.0.0.3:65535", "10.0.0.3", 65535, "10.0.0.3:65535"},
      {"host:02222", "host", 2222, "host:2222"},
      {"[::1]:2222", "::1", 2222, "[::1]:2222"},
      {"[2001:DB8::1]:80", "2001:DB8::1", 80, "[2001:DB8::1]:80"},
      {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
  };
  for (const AddressCase& c : cases) {
    const absl::StatusOr<Address> address = ParseAddress(c.text);
    ASSERT_TRUE(address.ok()) << c.text << ": " << address.status();
    EXPECT_EQ(address->host, c.host);
    EXPECT_EQ(address->port, c.port);
    EXPECT_EQ(address->ToString(), c.printed);
  }
}

TEST(Address, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "has no valid host name or IP address: write host:port"},
      {":2222", "has no valid host name or IP address: write host:port"},
      {"ho st:2222", "has no valid host name or IP address: write host:port"},
      {"host/x:2222", "has no valid host name or IP address: write host:port"},
      {"10.0.0.300:2222", "has no valid host name or IP address: write host:port"},
      {"grpc://host:2222", "has a scheme: write host:port without it"},
      {"host", "has no port: write host:2222"},
      {"host:", "has no port: write host:2222"},
      {"[::1]", "has no port: write [::1]:2222"},
      {"[::1]2222", "has no port: write [::1]:2222"},
      {"[::1:2222", "has no IPv6 address in its brackets: write [2001:db8::1]:2222"},
      {"[host]:2222", "has no IPv6 address in its brackets: write [2001:db8::1]:2222"},
      {"::1:2222",
       "has more than one colon: write an IPv6 address in brackets, [2001:db8::1]:2222"},
      {"host:x", "has a port that is not a number: write one from 1 to 65535"},
      {"host:-1", "has a port that is not a number: write one from 1 to 65535"},
      {"host:22 ", "has a port that is not a number: write one from 1 to 65535"},
      {"host:0", "has a port out of range: write one from 1 to 65535"},
      {"host:65536", "has a port out of range: write one from 1 to 65535"},
      {"host:99999999999999999999", "has a port out of range: write one from 1 to 65535"},
  };
  for (const auto& [text, why] : cases) {
    EXPECT_EQ(Message(ParseAddress(text).status()), why) << text;
  }
}

TEST(Address, HostNamesHaveNoCase) {
  EXPECT_EQ(*ParseAddress("Host.A:1"), *ParseAddress("host.a:1"));
  EXPECT_NE(*ParseAddress("host:1"), *ParseAddress("host:2"));
}

TEST(Address, KnowsLoopback) {
  for (const char* text : {"localhost:1", "127.0.0.1:1", "127.8.0.1:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLoopback(*ParseAddress(text))) << text;
  }
  for (const char* text : {"host:1", "10.0.0.1:1", "127.example.org:1", "[::2]:1"}) {
    EXPECT_FALSE(IsLoopback(*ParseAddress(text))) << text;
  }
}

}  // namespace
}  // namespace muster
