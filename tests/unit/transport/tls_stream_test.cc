#include "common/transport/tls_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>
#include <random>
#include <thread>

#include "common/transport/data_connection.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::transport {
namespace {

using ::testing::HasSubstr;
using testing::TestAuthority;

constexpr Duration kStreamLimit = std::chrono::minutes(2);

struct Ends {
  std::unique_ptr<TlsStream> client, server;
};

std::pair<int, int> SocketPair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {fds[0], fds[1]};
}

std::unique_ptr<TlsStream> MakeEnd(int fd, security::StreamSecurity& security, bool server,
                                   uint64_t records_per_key = TlsStream::kRecordsPerKey) {
  auto session = security.NewSession(server, server ? "" : "there");
  EXPECT_TRUE(session.ok()) << session.status();
  auto stream = TlsStream::Make(MakeTcpStream(fd), *std::move(session), records_per_key);
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

// Both to the end, or to the first error.
std::pair<absl::Status, absl::Status> Shake(TlsStream& client, TlsStream& server) {
  absl::StatusOr<bool> c = false, s = false;
  while (c.ok() && s.ok() && !(*c && *s)) {
    if (!*c) c = client.Handshake();
    // A client's last flight goes with its first bytes.
    if (c.ok() && *c) {
      EXPECT_TRUE(client.Write({}).ok());
    }
    if (!*s) s = server.Handshake();
  }
  return {c.status(), s.status()};
}

class TlsStreamTest : public ::testing::Test {
 protected:
  Ends Connect(uint64_t records_per_key = TlsStream::kRecordsPerKey) {
    const auto [a, b] = SocketPair();
    Ends ends{MakeEnd(a, *worker_, false, records_per_key),
              MakeEnd(b, *chief_, true, records_per_key)};
    const auto [c, s] = Shake(*ends.client, *ends.server);
    EXPECT_TRUE(c.ok() && s.ok()) << c << s;
    return ends;
  }

  TestAuthority authority_;
  std::shared_ptr<testing::TestSecurity> chief_ = authority_.Issue("chief:0");
  std::shared_ptr<testing::TestSecurity> worker_ = authority_.Issue("worker:1");
  const AbortSignal never_;
};

std::vector<std::byte> Bytes(size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::unique_ptr<DataConnection> ToConnection(std::unique_ptr<TlsStream> stream) {
  return std::make_unique<DataConnection>(std::move(stream), ConnectionInfo{});
}

TEST_F(TlsStreamTest, BothSidesKnowWhoTheOtherIs) {
  const Ends ends = Connect();
  EXPECT_EQ(chief_->PeerOf(ends.server->session())->task, "worker:1");
  EXPECT_EQ(worker_->PeerOf(ends.client->session())->task, "chief:0");
}

TEST_F(TlsStreamTest, MovesHugeAmountsBothWaysAtOnce) {
  Ends ends = Connect();
  const auto there = ToConnection(std::move(ends.client)),
             here = ToConnection(std::move(ends.server));
  const std::vector<std::byte> sent_a = Bytes(30'000'001, 1), sent_b = Bytes(20'000'003, 2);
  std::vector<std::byte> got_a(sent_b.size()), got_b(sent_a.size());
  std::thread other([&] {
    EXPECT_TRUE(there->Exchange(sent_a, got_a, Clock::now() + kStreamLimit, never_).ok());
  });
  const absl::Status status = here->Exchange(sent_b, got_b, Clock::now() + kStreamLimit, never_);
  other.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(got_a == sent_b && got_b == sent_a);
}

// The keys change many times meanwhile.
TEST_F(TlsStreamTest, MovesBytesUnderManyKeys) {
  Ends ends = Connect(3);
  const auto there = ToConnection(std::move(ends.client)),
             here = ToConnection(std::move(ends.server));
  const std::vector<std::byte> sent = Bytes(5'000'000, 3);
  std::vector<std::byte> a(sent.size()), b(sent.size());
  std::thread other(
      [&] { EXPECT_TRUE(there->Exchange(sent, a, Clock::now() + kStreamLimit, never_).ok()); });
  const absl::Status status = here->Exchange(sent, b, Clock::now() + kStreamLimit, never_);
  other.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(a == sent && b == sent);
}

TEST_F(TlsStreamTest, ByteByByteAndInPiecesOfAllSizes) {
  const Ends ends = Connect();
  const std::vector<std::byte> sent = Bytes(70'000, 4);
  std::vector<std::byte> got(sent.size());
  std::mt19937 random(5);
  size_t written = 0, read = 0;
  while (read < sent.size()) {
    std::vector<iovec> pieces;  // some of them empty
    size_t end = written;
    for (int i = 0; i < 9 && written < sent.size(); ++i) {
      const size_t n = written < 1000 ? 1 : random() % 4 == 0 ? random() % 20'000 : random() % 40;
      const size_t bytes = std::min(n, sent.size() - end);
      pieces.push_back({const_cast<std::byte*>(sent.data()) + end, bytes});
      end += bytes;
    }
    const auto moved = ends.client->Write(pieces);
    ASSERT_TRUE(moved.ok()) << moved.status();
    written += *moved;
    const size_t room = std::min<size_t>(1 + random() % 5000, sent.size() - read);
    iovec into[] = {{got.data() + read, room / 2}, {got.data() + read + room / 2, room - room / 2}};
    const auto n = ends.server->Read(into);
    ASSERT_TRUE(n.ok()) << n.status();
    read += *n;
  }
  EXPECT_TRUE(got == sent);
}

// Bytes that were not taken are at another address when they are offered again, with more behind
// them.
TEST_F(TlsStreamTest, APartialWriteGoesOnFromMovedMemory) {
  const Ends ends = Connect();
  const std::vector<std::byte> sent = Bytes(8'000'000, 6);
  std::vector<std::byte> got(sent.size());
  size_t written = 0, read = 0, stalls = 0, offer = 100'000;
  while (read < sent.size()) {
    if (written < sent.size()) {
      const size_t bytes = std::min(offer, sent.size() - written);
      std::vector<std::byte> copy(sent.begin() + written, sent.begin() + written + bytes);
      const iovec from{copy.data(), copy.size()};
      const auto moved = ends.client->Write({&from, 1});
      ASSERT_TRUE(moved.ok()) << moved.status();
      written += *moved;
      if (*moved == bytes) continue;
      ++stalls;
      offer = bytes + 100'000;
    }
    const iovec into{got.data() + read, std::min<size_t>(50'000, got.size() - read)};
    const auto n = ends.server->Read({&into, 1});
    ASSERT_TRUE(n.ok()) << n.status();
    read += *n;
  }
  EXPECT_GT(stalls, 3u);
  EXPECT_TRUE(got == sent);
}

TEST_F(TlsStreamTest, WhatIsDecryptedIsNotWaitedFor) {
  Ends ends = Connect();
  char text[100] = "many bytes in one record, of which the first are read";
  const iovec from{text, sizeof text};
  ASSERT_EQ(*ends.client->Write({&from, 1}), sizeof text);
  const auto here = ToConnection(std::move(ends.server));
  for (size_t i = 0; i < sizeof text; ++i) {
    Interest interest{here.get(), true, false};
    ASSERT_EQ(WaitReady({&interest, 1}, Clock::now() + kStreamLimit, never_), WaitResult::kReady)
        << i;
    ASSERT_TRUE(interest.ready);
    char byte = 0;
    const iovec into{&byte, 1};
    const auto n = here->TryRead({&into, 1});
    ASSERT_TRUE(n.ok() && *n == 1) << i;
    EXPECT_EQ(byte, text[i]);
  }
  Interest interest{here.get(), true, false};
  const auto nothing =
      WaitReady({&interest, 1}, Clock::now() + std::chrono::milliseconds(20), never_);
  EXPECT_EQ(nothing, WaitResult::kDeadline);
}

TEST_F(TlsStreamTest, ShutdownFromAnotherThreadEndsAWait) {
  Ends ends = Connect();
  TlsStream* const stream = ends.client.get();
  const auto there = ToConnection(std::move(ends.client));
  std::atomic<bool> waits = false;
  std::thread other([&] {
    while (!waits) std::this_thread::yield();
    stream->Shutdown();
  });
  std::vector<std::byte> into(100);
  const std::vector<std::byte> out(50'000'000);  // more than anybody takes
  waits = true;
  const absl::Status status = there->Exchange(out, into, Clock::now() + kStreamLimit, never_);
  other.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(TlsStreamTest, SessionsAreResumedByAddress) {
  for (int i = 0; i < 3; ++i) {
    const Ends ends = Connect();
    const iovec none{};
    ASSERT_TRUE(ends.server->Write({}).ok());         // the ticket
    ASSERT_TRUE(ends.client->Read({&none, 1}).ok());  // nothing to read: nothing is asked for
    char byte = 'x';
    const iovec one{&byte, 1};
    ASSERT_EQ(*ends.server->Write({&one, 1}), 1u);
    ASSERT_EQ(*ends.client->Read({&one, 1}), 1u);
    EXPECT_EQ(worker_->PeerOf(ends.client->session())->task, "chief:0");
    EXPECT_EQ(chief_->PeerOf(ends.server->session())->task, "worker:1");
  }
  EXPECT_EQ(worker_->full, 1);
  EXPECT_EQ(worker_->resumed, 2);
  EXPECT_EQ(chief_->resumed, 2);
}

// ---- what is not to be let in

TEST_F(TlsStreamTest, AnotherAuthorityIsRefusedByBothSides) {
  TestAuthority other;
  const auto stranger = other.Issue("worker:1");
  const auto [a, b] = SocketPair();
  const auto client = MakeEnd(a, *stranger, false), server = MakeEnd(b, *chief_, true);
  const auto [c, s] = Shake(*client, *server);
  EXPECT_THAT(std::string(Message(c)), HasSubstr("its certificate is refused"));
  // It says so.
  const auto answer = server->Handshake();
  EXPECT_THAT(std::string(Message(answer.status())),
              HasSubstr("refuses this process's certificate"));
}

TEST_F(TlsStreamTest, AnExpiredCertificateIsRefused) {
  const auto expired = authority_.IssueExpired("worker:1");
  const auto [a, b] = SocketPair();
  const auto client = MakeEnd(a, *expired, false), server = MakeEnd(b, *chief_, true);
  const auto [c, s] = Shake(*client, *server);
  EXPECT_THAT(std::string(Message(s)), HasSubstr("expired"));
}

TEST_F(TlsStreamTest, APlaintextPeerIsDistinguished) {
  const auto [a, b] = SocketPair();
  const auto server = MakeEnd(b, *chief_, true);
  ASSERT_EQ(write(a, "MUSTERDC: a hello in clear", 26), 26);
  const auto done = server->Handshake();
  EXPECT_THAT(std::string(Message(done.status())), HasSubstr("does not speak TLS"));
  close(a);
}

// ---- what happens on the way

// Passes on what it can from one to the other, with one bit changed at byte `flip`.
void PassOn(int from, int to, size_t& at, size_t flip) {
  char bytes[4096];
  const ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n <= 0) return;
  if (flip >= at && flip < at + n) bytes[flip - at] ^= 0x10;
  at += n;
  ASSERT_EQ(send(to, bytes, n, MSG_NOSIGNAL), n);
}

TEST_F(TlsStreamTest, AChangedBitAnywhereIsAnErrorAndNeverAWrongByte) {
  const std::string text(3000, 'p');
  for (size_t flip = 0; flip < 3044; flip += 11) {
    const auto [a, to_client] = SocketPair();
    const auto [b, to_server] = SocketPair();
    const auto client = MakeEnd(a, *worker_, false), server = MakeEnd(b, *chief_, true);
    size_t up = 0, down = 0;
    absl::StatusOr<bool> c = false, s = false;
    while (!(*c && *s)) {
      if (!*c) c = client->Handshake();
      ASSERT_TRUE(c.ok()) << c.status();
      if (*c) {
        ASSERT_TRUE(client->Write({}).ok());
      }
      PassOn(to_client, to_server, up, SIZE_MAX);
      if (!*s) s = server->Handshake();
      ASSERT_TRUE(s.ok()) << s.status();
      PassOn(to_server, to_client, down, SIZE_MAX);
    }
    up = 0;
    for (int i = 0; i < 2; ++i) {  // two records: 1500 bytes and 22 more each
      const iovec from{const_cast<char*>(text.data()), text.size() / 2};
      ASSERT_EQ(*client->Write({&from, 1}), text.size() / 2);
    }
    PassOn(to_client, to_server, up, flip);
    shutdown(to_server, SHUT_WR);
    char got[3001];
    size_t read = 0;
    absl::StatusOr<size_t> n = size_t{0};
    while (n.ok() && read < sizeof got) {
      const iovec into{got + read, sizeof got - read};
      n = server->Read({&into, 1});
      if (n.ok()) read += *n;
    }
    EXPECT_FALSE(n.ok()) << flip;
    EXPECT_EQ(read, flip < 1522 ? 0u : 1500u) << flip;
    EXPECT_EQ(std::string(got, read), text.substr(0, read));
    // A length that grew waits for bytes that never come.
    const std::string why(Message(n.status()));
    EXPECT_TRUE(why.find("changed on its way") != std::string::npos ||
                why.find("in the middle of a record") != std::string::npos)
        << flip << ": " << why;
    const iovec again{got, sizeof got};
    EXPECT_FALSE(server->Read({&again, 1}).ok()) << "the first error is kept";
    for (const int fd : {to_client, to_server}) close(fd);
  }
}

TEST_F(TlsStreamTest, ACutWithinARecordIsDistinguishedFromAnEnd) {
  for (const bool within : {true, false}) {
    const auto [a, to_client] = SocketPair();
    const auto [b, to_server] = SocketPair();
    const auto client = MakeEnd(a, *worker_, false), server = MakeEnd(b, *chief_, true);
    size_t ignored = 0;
    absl::StatusOr<bool> c = false, s = false;
    while (c.ok() && s.ok() && !(*c && *s)) {
      if (!*c) c = client->Handshake();
      if (c.ok() && *c) {
        ASSERT_TRUE(client->Write({}).ok());
      }
      PassOn(to_client, to_server, ignored, SIZE_MAX);
      if (!*s) s = server->Handshake();
      PassOn(to_server, to_client, ignored, SIZE_MAX);
    }
    const std::string text(1000, 't');
    const iovec from{const_cast<char*>(text.data()), text.size()};
    ASSERT_EQ(*client->Write({&from, 1}), text.size());
    char record[2000];
    const ssize_t size = recv(to_client, record, sizeof record, 0);
    ASSERT_EQ(size, 1022);
    ASSERT_EQ(send(to_server, record, within ? 500 : size, MSG_NOSIGNAL), within ? 500 : size);
    shutdown(to_server, SHUT_WR);
    char got[2000];
    const iovec into{got, sizeof got};
    if (!within) {
      EXPECT_EQ(*server->Read({&into, 1}), text.size());
    }
    const auto end = server->Read({&into, 1});
    EXPECT_THAT(std::string(Message(end.status())),
                HasSubstr(within ? "in the middle of a record" : "closed the connection"));
    for (const int fd : {to_client, to_server}) close(fd);
  }
}

// The bytes of one handshake mean nothing to the next.
TEST_F(TlsStreamTest, ReplayedBytesAreRefused) {
  std::string recorded;
  {
    const auto [a, to_client] = SocketPair();
    const auto [b, to_server] = SocketPair();
    const auto client = MakeEnd(a, *worker_, false), server = MakeEnd(b, *chief_, true);
    absl::StatusOr<bool> c = false, s = false;
    size_t down = 0;
    char byte = 'x';
    const iovec one{&byte, 1};
    while (c.ok() && s.ok() && !(*c && *s)) {
      if (!*c) {
        c = client->Handshake();
        if (c.ok() && *c) {
          ASSERT_TRUE(client->Write({&one, 1}).ok());
        }
      }
      char bytes[8192];
      const ssize_t n = recv(to_client, bytes, sizeof bytes, MSG_DONTWAIT);
      if (n > 0) {
        recorded.append(bytes, n);
        ASSERT_EQ(send(to_server, bytes, n, MSG_NOSIGNAL), n);
      }
      if (!*s) s = server->Handshake();
      PassOn(to_server, to_client, down, SIZE_MAX);
    }
    ASSERT_TRUE(c.ok() && s.ok());
    for (const int fd : {to_client, to_server}) close(fd);
  }
  const auto [a, b] = SocketPair();
  const auto server = MakeEnd(b, *chief_, true);
  ASSERT_EQ(send(a, recorded.data(), recorded.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(recorded.size()));
  absl::StatusOr<bool> done = false;
  while (done.ok() && !*done) done = server->Handshake();
  EXPECT_FALSE(done.ok());
  close(a);
}

}  // namespace
}  // namespace muster::transport
