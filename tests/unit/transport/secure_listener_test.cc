// Listeners with security: who is let in, and what passes between two of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/base/logged_lines.h"
#include "tests/unit/transport/listeners.h"
#include "tests/unit/transport/proxy.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::transport {
namespace {

using ::testing::HasSubstr;
using testing::Proxy;
using testing::TestAuthority;

class SecureListenerTest : public ::testing::Test {
 protected:
  absl::Status Refusal(DataListener& from, DialRequest request) {
    const auto dialing = from.Dial(std::move(request));
    const auto result = Await(from, *dialing);
    EXPECT_FALSE(result.ok());
    return result.status();
  }

  TestAuthority authority_;
  std::shared_ptr<testing::TestSecurity> chief_ = authority_.Issue("chief:0");
  std::shared_ptr<testing::TestSecurity> worker_ = authority_.Issue("worker:1");
  const std::unique_ptr<DataListener> a_ = Listen({.security = chief_});
  const std::unique_ptr<DataListener> b_ = Listen({.security = worker_});
  const AbortSignal never_;
};

TEST_F(SecureListenerTest, ConnectionsSayWhoTheOtherSideIs) {
  const auto admission = a_->Admit(5, 0, "ticket");
  const auto dialing = b_->Dial(To(a_->address(), {5, 1, 0, 0, "ticket"}, "chief:0"));
  const Result there = Await(*b_, *dialing);
  ASSERT_TRUE(there.ok()) << there.status();
  const auto here = AwaitTake(*a_, *admission, 1);
  ASSERT_NE(here, nullptr);
  EXPECT_EQ(here->info().peer, "worker:1");
  EXPECT_EQ((*there)->info().peer, "chief:0");
  std::vector<std::byte> sent(10'000'000, std::byte{7}), received_a(sent.size()),
      received_b(sent.size());
  std::thread other([&] {
    EXPECT_TRUE((*there)->Exchange(sent, received_b, Clock::now() + kLong, never_).ok());
  });
  EXPECT_TRUE(here->Exchange(sent, received_a, Clock::now() + kLong, never_).ok());
  other.join();
  EXPECT_TRUE(received_a == sent && received_b == sent);
}

TEST_F(SecureListenerTest, EarlyConnectionsAreHeldAndLaterOnesResume) {
  const auto early = b_->Dial(To(*a_, {9, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(*b_, *early, std::chrono::milliseconds(50)).status()));
  const auto admission = a_->Admit(9, 0, "ticket");
  ASSERT_TRUE(Await(*b_, *early).ok());
  for (uint32_t channel = 1; channel < 4; ++channel) {
    const auto again = b_->Dial(To(*a_, {9, 1, 0, channel, "ticket"}));
    ASSERT_TRUE(Await(*b_, *again).ok());
  }
  EXPECT_EQ(worker_->full, 1);
  EXPECT_EQ(worker_->resumed, 3);
  EXPECT_EQ(chief_->resumed, 3);
  EXPECT_EQ(AwaitTake(*a_, *admission, 1)->info().peer, "worker:1");
}

TEST_F(SecureListenerTest, TheAnswerComesFromTheIntendedTask) {
  const auto admission = a_->Admit(5, 0, "ticket");
  const absl::Status status = Refusal(*b_, To(a_->address(), {5, 1, 0, 0, "ticket"}, "ps:3"));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("chief:0 answers there, and not ps:3"));
  EXPECT_EQ(admission->TakeAny(), nullptr);
}

TEST_F(SecureListenerTest, StrangersReceiveTheReasonAndNothingIsHeldForThem) {
  const auto admission = a_->Admit(5, kAnyone, "ticket");
  TestAuthority another;
  // The same ticket: it helps nobody.
  const Hello hello{5, 1, 0, 0, "ticket"}, early{6, 1, 0, 0, "ticket"};
  const auto other_run = Listen({.security = another.Issue("worker:1")});
  EXPECT_THAT(std::string(Message(Refusal(*other_run, To(*a_, hello)))),
              HasSubstr("its certificate is refused"));
  const auto expired = Listen({.security = authority_.IssueExpired("worker:1")});
  EXPECT_THAT(std::string(Message(Refusal(*expired, To(*a_, early)))),
              HasSubstr("refuses this process's certificate: it has expired"));
  const auto elsewhere = Listen({.security = authority_.IssueFor("another", "worker:1")});
  const auto there = elsewhere->Admit(5, kAnyone, "ticket");
  EXPECT_THAT(std::string(Message(Refusal(*b_, To(*elsewhere, hello)))),
              HasSubstr("it is of another cluster: muster://another/worker/1"));
  EXPECT_EQ(there->TakeAny(), nullptr);
  const auto plain = Listen();
  EXPECT_THAT(std::string(Message(Refusal(*plain, To(*a_, hello)))),
              HasSubstr("it demands TLS, which this process does not use"));
  const auto of_plain = plain->Admit(5, kAnyone, "ticket");
  EXPECT_THAT(std::string(Message(Refusal(*b_, To(*plain, hello)))),
              HasSubstr("does not use TLS 1.3, which this process demands"));
  EXPECT_EQ(admission->TakeAny(), nullptr);
  EXPECT_EQ(of_plain->TakeAny(), nullptr);
  const auto later = a_->Admit(6, kAnyone, "ticket");
  EXPECT_EQ(later->TakeAny(), nullptr) << "of an early one nothing was kept";
}

// Its certificate is good, and names nobody who belongs here: only this side knows that.
class Exclusive final : public security::StreamSecurity {
 public:
  explicit Exclusive(std::shared_ptr<security::StreamSecurity> security)
      : security_(std::move(security)) {}
  absl::StatusOr<security::SslPtr> NewSession(bool server, const std::string& address) override {
    return security_->NewSession(server, address);
  }
  absl::StatusOr<security::Peer> PeerOf(const SSL&) override {
    return PeerLost("it names \x1b[31m nobody\n here");
  }

 private:
  const std::shared_ptr<security::StreamSecurity> security_;
};

TEST_F(SecureListenerTest, ARefusalAfterTheHandshakeIsReported) {
  const testing::LoggedLines log;
  const auto a = Listen({.security = std::make_shared<Exclusive>(chief_)});
  const auto admission = a->Admit(5, kAnyone, "ticket");
  EXPECT_THAT(std::string(Message(Refusal(*b_, To(*a, {5, 1, 0, 0, "ticket"})))),
              HasSubstr("it does not know the task that this process's certificate names"));
  EXPECT_EQ(admission->TakeAny(), nullptr);
  EXPECT_TRUE(log.Await("it names \\x1b[31m nobody\\n here")) << log.text();
  EXPECT_EQ(log.Count("\x1b"), 0);
}

// The log names the peer by its certificate.
TEST_F(SecureListenerTest, NamesInCertificatesForgeNoLine) {
  const testing::LoggedLines log;
  const auto admission = a_->Admit(5, 0, "ticket");
  const auto forger =
      Listen({.security = authority_.Issue("worker:1 \xe2\x80\xae\x7f" + std::string(5000, 'w'))});
  EXPECT_THAT(std::string(Message(Refusal(*forger, To(*a_, {5, 1, 0, 0, "another"})))),
              HasSubstr("ticket"));
  EXPECT_TRUE(log.Await("(worker:1 \\xe2\\x80\\xae\\x7fwwww")) << log.text();
  EXPECT_EQ(log.Count("\x7f"), 0);
  EXPECT_LT(log.text().size(), 1500u);
}

TEST_F(SecureListenerTest, ManyDialsUnderAFormingGenerationAllComeThrough) {
  std::vector<std::unique_ptr<Dialing>> dials;
  for (int i = 0; i < 300; ++i) dials.push_back(b_->Dial(To(*a_, {1, i + 1, 0, 0, "ticket"})));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // some come early, and are held
  const auto admission = a_->Admit(1, 0, "ticket");
  for (size_t i = 0; i < dials.size(); ++i) {
    const auto result = Await(*b_, *dials[i]);
    ASSERT_TRUE(result.ok()) << i << ": " << result.status();
  }
}

// ---- on the path

TEST_F(SecureListenerTest, NoByteOfItIsInClear) {
  const Proxy proxy(a_->address());
  const auto admission = a_->Admit(5, 0, "a ticket, in all secrecy");
  const auto dialing = b_->Dial(To(proxy.address(), {5, 1, 0, 0, "a ticket, in all secrecy"}));
  const Result there = Await(*b_, *dialing);
  ASSERT_TRUE(there.ok()) << there.status();
  const auto here = AwaitTake(*a_, *admission, 1);
  // Parameters, which the encrypted bytes must not reveal.
  std::vector<float> parameters(200'000);
  std::mt19937 random(1);
  for (float& p : parameters) p = std::normal_distribution<float>()(random);
  const auto sent = std::as_bytes(std::span(parameters));
  std::vector<std::byte> a(sent.size()), b(sent.size());
  std::thread other(
      [&] { EXPECT_TRUE((*there)->Exchange(sent, a, Clock::now() + kLong, never_).ok()); });
  EXPECT_TRUE(here->Exchange(sent, b, Clock::now() + kLong, never_).ok());
  other.join();
  EXPECT_TRUE(std::ranges::equal(a, sent) && std::ranges::equal(b, sent));
  const std::string seen = proxy.seen();
  ASSERT_GT(seen.size(), 2 * sent.size());
  EXPECT_EQ(seen.find("in all secrecy"), std::string::npos);
  EXPECT_EQ(seen.find("MUSTERDC"), std::string::npos);
  const std::string_view text(reinterpret_cast<const char*>(sent.data()), sent.size());
  // Eight bytes do not come by chance: 3e6 places and 1e5 samples against 2^64.
  std::set<std::string_view> samples;
  for (size_t i = 0; i + 8 <= text.size(); i += 8) samples.insert(text.substr(i, 8));
  size_t found = 0;
  for (size_t i = 0; i + 8 <= seen.size(); ++i)
    found += samples.contains(std::string_view(seen).substr(i, 8));
  EXPECT_EQ(found, 0u);
}

// Without security the same proxy finds them: the search above is able to.
TEST_F(SecureListenerTest, WithoutSecurityAllIsInClear) {
  const auto a = Listen(), b = Listen();
  const Proxy proxy(a->address());
  const auto admission = a->Admit(5, 0, "a ticket, in all secrecy");
  const auto dialing = b->Dial(To(proxy.address(), {5, 1, 0, 0, "a ticket, in all secrecy"}));
  ASSERT_TRUE(Await(*b, *dialing).ok());
  EXPECT_NE(proxy.seen().find("in all secrecy"), std::string::npos);
}

TEST_F(SecureListenerTest, AChangedBitIsReportedAndNothingWrongIsRead) {
  for (const size_t flip : {5'000, 20'000, 100'001, 999'999}) {
    const auto a = Listen({.security = chief_});
    const Proxy proxy(a->address(), flip);
    const auto admission = a->Admit(5, 0, "ticket");
    const auto dialing = b_->Dial(To(proxy.address(), {5, 1, 0, 0, "ticket"}));
    const Result there = Await(*b_, *dialing);
    ASSERT_TRUE(there.ok()) << there.status();
    const auto here = AwaitTake(*a, *admission, 1);
    const std::vector<std::byte> sent(2'000'000, std::byte{0x5a});
    std::vector<std::byte> got(sent.size());
    std::thread other([&] { (void)(*there)->Exchange(sent, {}, Clock::now() + kLong, never_); });
    const absl::Status status = here->Exchange({}, got, Clock::now() + kLong, never_);
    here->Shutdown();
    other.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the data was changed on its way"));
    for (const std::byte byte : got) ASSERT_TRUE(byte == std::byte{0x5a} || byte == std::byte{0});
  }
}

TEST_F(SecureListenerTest, WhatWasRecordedOpensNothing) {
  const auto admission = a_->Admit(5, 0, "ticket");
  std::string recorded;
  {
    const Proxy proxy(a_->address());
    const auto dialing = b_->Dial(To(proxy.address(), {5, 1, 0, 0, "ticket"}));
    ASSERT_TRUE(Await(*b_, *dialing).ok());
    recorded = proxy.seen_up();
  }
  ASSERT_NE(AwaitTake(*a_, *admission, 1), nullptr);
  const int fd = RawConnect(a_->address());
  EXPECT_GT(send(fd, recorded.data(), recorded.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(fd, 20'000));
  close(fd);
  EXPECT_EQ(admission->TakeAny(), nullptr);
}

}  // namespace
}  // namespace muster::transport
