// Tests identities on data connections (TLS over a socket pair) and in calls to a gRPC server.
#include "common/security/identity.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/server/server.h"
#include "proto/flight.grpc.pb.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/security/cluster.h"

namespace muster::security {
namespace {

using ::testing::HasSubstr;
using testing::LoggedLines;

constexpr char kOther[] = "fedcba9876543210";

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    Write("one", Key('1'));
    Write("two", Key('2'));
    Write("both", Key('2') + Key('1'));
  }
  ~IdentityTest() override { std::filesystem::remove_all(folder_); }

  static std::string Key(char digit) { return std::string(64, digit) + "\n"; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    std::filesystem::permissions(
        Path(name), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }

  std::shared_ptr<Identity> Make(const std::string& task, const std::string& key = "one",
                                 const std::string& cluster = kCluster) {
    IdentityOptions options;
    options.self = {cluster, task};
    options.run_key = Path(key);
    auto made = Identity::Make(options);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  // With certificates from files, as `muster key certificates` writes them.
  absl::StatusOr<std::shared_ptr<Identity>> FromFiles(const Authority& authority,
                                                      const std::string& task,
                                                      const std::string& certified,
                                                      const std::string& host) {
    const auto made = authority.Issue(other_uris_ + UriOf({kCluster, certified}), {host});
    Write(task + ".pem", expire_ ? Expired(authority, made->certificate) : made->certificate);
    Write(task + ".key", made->key);
    Write("authority", made->authorities);
    IdentityOptions options;
    options.self = {kCluster, task};
    options.files = {Path(task + ".pem"), Path(task + ".key"), Path("authority")};
    options.hosts = hosts_;
    options.look_again = std::chrono::hours(1);  // Tests call Refresh instead.
    options.wall_clock = [this] { return now_.load(); };
    return Identity::Make(options);
  }

  static std::string Expired(const Authority& authority, const std::string& pem) {
    const X509Ptr certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
    const std::string key_text = *authority.PrivateKey();
    const KeyPtr key(PEM_read_bio_PrivateKey(BioOf(key_text).get(), nullptr, nullptr, nullptr));
    ASN1_TIME_set_string(X509_getm_notAfter(certificate.get()), "19700102000000Z");
    EXPECT_GT(X509_sign(certificate.get(), key.get(), nullptr), 0);
    const BioPtr text(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(text.get(), certificate.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(text.get(), &data);
    return std::string(data, size);
  }

  // The peer that the server and the client see, or the errors of a failed handshake.
  struct Met {
    absl::StatusOr<Peer> by_server, by_client;
    bool resumed = false;
  };
  // Calls `between` before the client reads the messages after the handshake.
  static Met Meet(Identity& server, Identity& client, const std::function<void()>& between = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Met met{absl::UnknownError("no handshake"), absl::UnknownError("no handshake")};
    std::thread accepting([&] {
      SslPtr ssl = *server.NewSession(true, "");
      SSL_set_fd(ssl.get(), ends[0]);
      if (SSL_do_handshake(ssl.get()) == 1) {
        met.by_server = server.PeerOf(*ssl);
        met.resumed = SSL_session_reused(ssl.get()) == 1;
        SSL_write(ssl.get(), "x", 1);
      }
      shutdown(ends[0], SHUT_WR);
    });
    SslPtr ssl = *client.NewSession(false, "10.0.0.9:5");
    SSL_set_fd(ssl.get(), ends[1]);
    if (SSL_do_handshake(ssl.get()) == 1) {
      met.by_client = client.PeerOf(*ssl);
      if (between) between();
      char byte = 0;
      SSL_read(ssl.get(), &byte, 1);  // Also reads the session ticket or the server's refusal.
    }
    accepting.join();
    close(ends[0]);
    close(ends[1]);
    return met;
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-identity-XXXXXX";
  // Options of the certificates that FromFiles writes.
  bool expire_ = false;
  std::string other_uris_;  // Such as "spiffe://x,URI:".
  std::map<std::string, std::string> hosts_ = {{"worker:0", "10.0.0.1"}, {"worker:1", "10.0.0.2"}};
  std::atomic<int64_t> now_ = 1'700'000'000;  // Seconds since 1970.
};

TEST_F(IdentityTest, HoldersOfOneKeyKnowEachOther) {
  const auto chief = Make("chief:0"), worker = Make("worker:1");
  const Met met = Meet(*chief, *worker);
  ASSERT_TRUE(met.by_server.ok()) << met.by_server.status();
  ASSERT_TRUE(met.by_client.ok()) << met.by_client.status();
  EXPECT_EQ(met.by_server->task, "worker:1");
  EXPECT_EQ(met.by_client->task, "chief:0");
}

TEST_F(IdentityTest, ASessionIsResumedWithItsIdentity) {
  const auto chief = Make("chief:0"), worker = Make("worker:1");
  EXPECT_FALSE(Meet(*chief, *worker).resumed);
  const Met again = Meet(*chief, *worker);
  EXPECT_TRUE(again.resumed);
  ASSERT_TRUE(again.by_server.ok()) << again.by_server.status();
  EXPECT_EQ(again.by_server->task, "worker:1");
}

TEST_F(IdentityTest, AnotherKeyOrClusterIsRefusedByBothSides) {
  const auto chief = Make("chief:0"), stranger = Make("worker:1", "two"),
             elsewhere = Make("worker:1", "one", kOther);
  EXPECT_FALSE(Meet(*chief, *stranger).by_server.ok());
  EXPECT_FALSE(Meet(*stranger, *chief).by_client.ok());
  EXPECT_THAT(std::string(Message(Meet(*chief, *elsewhere).by_server.status())),
              HasSubstr("another cluster"));
}

TEST_F(IdentityTest, KeysAreReplacedOneTaskAfterTheOther) {
  const auto chief = Make("chief:0"), worker = Make("worker:1");
  Write("one", Key('2') + Key('1'));
  chief->Refresh();  // The chief now shows the new key and accepts both.
  EXPECT_FALSE(Meet(*chief, *worker).by_client.ok()) << "the worker knows only the old one";
  worker->Refresh();
  EXPECT_TRUE(Meet(*chief, *worker).by_client.ok());
  const auto late = Make("worker:2", "both");
  Write("one", Key('2'));
  chief->Refresh();
  const Met met = Meet(*chief, *late);
  EXPECT_TRUE(met.by_server.ok() && met.by_client.ok());
  EXPECT_FALSE(Meet(*chief, *Make("worker:3", "two", kOther)).by_server.ok());
}

TEST_F(IdentityTest, ATicketMayComeAfterAChangeOfKeys) {
  const auto chief = Make("chief:0"), worker = Make("worker:1");
  const Met met = Meet(*chief, *worker, [&] {
    Write("one", Key('2') + Key('1'));
    worker->Refresh();
  });
  EXPECT_TRUE(met.by_client.ok());
  chief->Refresh();
  const Met again = Meet(*chief, *worker);
  EXPECT_TRUE(again.by_client.ok());
  EXPECT_FALSE(again.resumed) << "it was of the old keys";
}

TEST_F(IdentityTest, AKeyThatBecomesUnreadableStaysInUse) {
  const auto chief = Make("chief:0"), worker = Make("worker:1");
  Write("one", "nonsense");
  chief->Refresh();
  EXPECT_TRUE(Meet(*chief, *worker).by_server.ok());
}

TEST_F(IdentityTest, CertificatesFromFilesNameTheirTaskAndItsHost) {
  const auto authority = Authority::Random();
  const auto zero = FromFiles(*authority, "worker:0", "worker:0", "10.0.0.1");
  const auto one = FromFiles(*authority, "worker:1", "worker:1", "10.0.0.2");
  ASSERT_TRUE(zero.ok()) << zero.status();
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(Meet(**zero, **one).by_server->task, "worker:1");
  EXPECT_THAT(
      std::string(Message(FromFiles(*authority, "worker:1", "worker:0", "10.0.0.1").status())),
      HasSubstr("is the certificate of worker:0, and this task is worker:1"));
  EXPECT_THAT(
      std::string(Message(FromFiles(*authority, "worker:1", "worker:1", "10.0.0.7").status())),
      HasSubstr("does not name its host, 10.0.0.2"));
}

TEST_F(IdentityTest, AHostMayBeSpeltInAnotherWayThanItsCertificateDoes) {
  const auto authority = Authority::Random();
  hosts_ = {{"worker:0", "FD00:0::1"}, {"worker:1", "Host1.Example"}};
  const auto zero = FromFiles(*authority, "worker:0", "worker:0", "fd00::1");
  const auto one = FromFiles(*authority, "worker:1", "worker:1", "host1.EXAMPLE");
  ASSERT_TRUE(zero.ok()) << zero.status();
  ASSERT_TRUE(one.ok()) << one.status();
  const Met met = Meet(**zero, **one);
  EXPECT_TRUE(met.by_server.ok()) << met.by_server.status();
  EXPECT_TRUE(met.by_client.ok()) << met.by_client.status();
  EXPECT_FALSE(FromFiles(*authority, "worker:0", "worker:0", "fd00::2").ok());
}

TEST_F(IdentityTest, OfFilesThatEndALineADayWarnsFromAWeekBefore) {
  constexpr int64_t kHour = 3600, kDay = 24 * kHour, kEnd = 253'402'300'799;
  const auto authority = Authority::Random();
  const auto own = FromFiles(*authority, "worker:0", "worker:0", "10.0.0.1");
  ASSERT_TRUE(own.ok()) << own.status();
  const LoggedLines log;
  const auto at = [&](int64_t now) {
    now_ = now;
    (*own)->Refresh();
    return log.Count("the certificate " + Path("worker:0.pem"));
  };
  EXPECT_EQ(at(kEnd - 8 * kDay), 0);
  EXPECT_EQ(at(kEnd - 7 * kDay + kHour), 1);
  EXPECT_EQ(log.Count("expires in 167 hours"), 2) << "that of the authority, too";
  EXPECT_EQ(log.Count(Path("authority") + " expires"), 1);
  EXPECT_EQ(at(kEnd - 6 * kDay), 1);
  EXPECT_EQ(at(kEnd - 6 * kDay + kHour), 2) << "once a day";
  EXPECT_EQ(at(kEnd + kDay), 3);
  EXPECT_EQ(log.Count(Path("worker:0.pem") + " has expired: peers refuse it"), 1);
  EXPECT_EQ(log.Count("the certificate "), 6);
}

class FlightStub final : public proto::Flight::Service {
 public:
  grpc::Status Keep(grpc::ServerContext* context, const proto::FlightKeepRequest* request,
                    proto::FlightKeepReply* reply) override {
    ++calls;
    const auto caller = rpc::CallerOf(*context);
    reply->set_reason(caller ? caller->task : "nobody");
    return rpc::RequireSpeaker(*context, request->task());
  }
  std::atomic<int> calls = 0;
};

// The text in the refused process's error when gRPC gives no other reason.
constexpr char kSeen[] =
    "it ended the connection when it had seen this process's certificate: its own log says why";

class IdentityOfCalls : public IdentityTest {
 protected:
  void Start(std::shared_ptr<Identity> identity) {
    rpc::ServerOptions options;
    options.address = "127.0.0.1:0";
    options.identity = std::move(identity);
    options.may_call = [](const Peer& caller, std::string_view method) {
      return caller.task.starts_with("worker:") && method == "/muster.proto.Flight/Keep";
    };
    auto server = rpc::Server::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  grpc::Status Call(std::shared_ptr<Identity> identity, const std::string& task,
                    const std::string& server_task = "chief:0") {
    rpc::ChannelOptions options;
    options.identity = std::move(identity);
    options.server_task = server_task;
    const auto channel = *rpc::MakeChannel(Address(), options);
    proto::FlightKeepRequest request;
    request.set_task(task);
    return proto::Flight::NewStub(channel)->Keep(rpc::WithDeadline(std::chrono::seconds(20)).get(),
                                                 request, &reply_);
  }

  std::string Address() const { return "127.0.0.1:" + std::to_string(server_->port()); }

  FlightStub service_;
  std::unique_ptr<rpc::Server> server_;
  proto::FlightKeepReply reply_;
};

TEST_F(IdentityOfCalls, ReachTheHandlerAsWhoTheCertificateSays) {
  Start(Make("chief:0"));
  const grpc::Status called = Call(Make("worker:1"), "worker:1");
  EXPECT_TRUE(called.ok()) << called.error_message();
  EXPECT_EQ(reply_.reason(), "worker:1");
  EXPECT_EQ(Call(Make("worker:1"), "worker:0").error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(IdentityOfCalls, ThatTheRuleRefusesDoNotReachTheHandler) {
  Start(Make("chief:0"));
  EXPECT_EQ(Call(Make("ps:0"), "ps:0").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(IdentityOfCalls, WithoutTheKeyNeverGetThrough) {
  Start(Make("chief:0"));
  EXPECT_EQ(Call(nullptr, "worker:1").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Call(Make("worker:1", "two"), "worker:1").error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(Make("worker:1", "one", kOther), "worker:1").error_code(),
            grpc::StatusCode::UNAVAILABLE)
      << "the server is of another cluster";
  EXPECT_EQ(service_.calls, 0);
}

TEST_F(IdentityOfCalls, GoToTheTaskThatTheyAreMeantFor) {
  Start(Make("worker:0"));
  EXPECT_EQ(Call(Make("worker:1"), "worker:1", "chief:0").error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls, 0);
}

// Both sides log the reason of each refusal.
TEST_F(IdentityOfCalls, OfAnotherKeySayWhyOnBothSides) {
  Start(Make("chief:0"));
  const LoggedLines log;
  EXPECT_FALSE(Call(Make("worker:1", "two"), "worker:1").ok());
  EXPECT_TRUE(log.Await("cannot connect to chief:0 (" + Address() +
                        "): its certificate is refused: another authority signed it (is it of "
                        "another run's key?)"))
      << log.text();
  EXPECT_TRUE(log.Await(std::string("ended before the peer proved its identity: ") + kSeen))
      << log.text();
}

// The client accepts both keys, and the server only the old one.
TEST_F(IdentityOfCalls, OfAKeyThatTheServerAloneRefusesSayWhyOnBothSides) {
  Start(Make("chief:0"));
  const LoggedLines log;
  EXPECT_FALSE(Call(Make("worker:1", "both"), "worker:1").ok());
  EXPECT_TRUE(
      log.Await("ended before the peer proved its identity: its certificate is refused: another "
                "authority signed it (is it of another run's key?)"))
      << log.text();
  EXPECT_TRUE(log.Await("cannot connect to chief:0 (" + Address() + "): " + kSeen)) << log.text();
}

TEST_F(IdentityOfCalls, WithAnExpiredCertificateSayWhyOnBothSides) {
  const auto authority = Authority::Random();
  const auto own = FromFiles(*authority, "worker:0", "worker:0", "10.0.0.1");
  ASSERT_TRUE(own.ok()) << own.status();
  Start(*own);
  expire_ = true;
  const auto expired = FromFiles(*authority, "worker:1", "worker:1", "10.0.0.2");
  ASSERT_TRUE(expired.ok()) << expired.status();
  {
    const LoggedLines log;
    EXPECT_FALSE(Call(*expired, "worker:1", "worker:0").ok());
    EXPECT_TRUE(
        log.Await("ended before the peer proved its identity: its certificate is refused: it has "
                  "expired"))
        << log.text();
    EXPECT_TRUE(log.Await("cannot connect to worker:0 (" + Address() + "): " + kSeen))
        << log.text();
  }
  server_.reset();
  Start(*expired);
  const LoggedLines log;
  EXPECT_FALSE(Call(*own, "worker:0", "worker:1").ok());
  EXPECT_TRUE(log.Await("cannot connect to worker:1 (" + Address() +
                        "): its certificate is refused: it has expired"))
      << log.text();
}

// In a service mesh, one certificate serves several purposes.
TEST_F(IdentityOfCalls, AndDataTakeACertificateWithUrisOfOthers) {
  const auto authority = Authority::Random();
  other_uris_ = "spiffe://mesh/ns/training/sa/job,URI:";
  hosts_ = {{"worker:0", "FD00:0::1"}, {"worker:1", "Host1.Example"}};
  const auto own = FromFiles(*authority, "worker:0", "worker:0", "fd00::1");
  const auto other = FromFiles(*authority, "worker:1", "worker:1", "host1.EXAMPLE");
  ASSERT_TRUE(own.ok() && other.ok()) << own.status() << other.status();
  EXPECT_TRUE(Meet(**own, **other).by_server.ok());
  Start(*own);
  const grpc::Status called = Call(*other, "worker:1", "worker:0");
  EXPECT_TRUE(called.ok()) << called.error_message();
  EXPECT_EQ(reply_.reason(), "worker:1");
}

// An authority may sign any name that people request.
TEST_F(IdentityOfCalls, OfAClusterThatIsNoDigestForgeNoLine) {
  const auto authority = Authority::Random();
  const auto own = FromFiles(*authority, "worker:0", "worker:0", "10.0.0.1");
  ASSERT_TRUE(own.ok()) << own.status();
  Start(*own);
  const auto forged = authority->Issue("muster://\x1b[31mROOT CAUSE: worker 1/worker/1", {});
  ASSERT_TRUE(forged.ok()) << forged.status();
  const LoggedLines log;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("10.0.0.1");
  const auto channel = grpc::CreateCustomChannel(
      Address(), grpc::SslCredentials({forged->authorities, forged->key, forged->certificate}),
      arguments);
  const auto context = rpc::WithDeadline(std::chrono::seconds(20));
  const grpc::Status called =
      proto::Flight::NewStub(channel)->Keep(context.get(), proto::FlightKeepRequest(), &reply_);
  EXPECT_EQ(called.error_code(), grpc::StatusCode::PERMISSION_DENIED) << called.error_message();
  EXPECT_TRUE(
      log.Await("called /muster.proto.Flight/Keep and was refused: its certificate names no task"))
      << log.text();
  EXPECT_EQ(log.Count("ROOT CAUSE"), 0) << log.text();
}

TEST_F(IdentityOfCalls, WithoutACertificateAreNamedSo) {
  Start(Make("chief:0"));
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL's sockets do not suppress the signal.
  const LoggedLines log;
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  const BioPtr connection(BIO_new_ssl_connect(context.get()));
  BIO_set_conn_hostname(connection.get(), Address().c_str());
  char byte = 0;
  BIO_write(connection.get(), "x", 1);
  EXPECT_LE(BIO_read(connection.get(), &byte, 1), 0);
  EXPECT_TRUE(log.Await("ended before the peer proved its identity: it shows no certificate"))
      << log.text();
}

TEST_F(IdentityOfCalls, ToAnotherTaskSayWhoAnswered) {
  Start(Make("worker:0"));
  const LoggedLines log;
  EXPECT_FALSE(Call(Make("worker:1"), "worker:1", "chief:0").ok());
  EXPECT_TRUE(
      log.Await("cannot connect to chief:0 (" + Address() + "): it is worker:0, not chief:0"))
      << log.text();
}

TEST_F(IdentityOfCalls, InPlaintextAreNamedSo) {
  Start(Make("chief:0"));
  const LoggedLines log;
  EXPECT_FALSE(Call(nullptr, "worker:1").ok());
  EXPECT_TRUE(
      log.Await("called /muster.proto.Flight/Keep and was refused: it speaks plaintext, which only "
                "health checks may use"))
      << log.text();
}

TEST_F(IdentityOfCalls, ToAServerWithoutTlsSayWhyOnBothSides) {
  Start(nullptr);
  const LoggedLines log;
  EXPECT_FALSE(Call(Make("worker:1"), "worker:1").ok());
  EXPECT_TRUE(log.Await("it speaks TLS, which this process does not use")) << log.text();
  EXPECT_TRUE(log.Await("cannot connect to chief:0 (" + Address() +
                        "): the other side does not use TLS 1.3"))
      << log.text();
}

// A peer that is refused repeatedly causes one log line.
TEST_F(IdentityOfCalls, ThatAreRefusedAgainAndAgainCostALine) {
  Start(Make("chief:0"));
  const LoggedLines log;
  const auto stranger = Make("worker:1", "two");
  const MonotonicTime start = Clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Call(stranger, "worker:1").ok());
  EXPECT_TRUE(log.Await("ended before the peer proved its identity"));
  const auto lines = 1 + static_cast<int>(Seconds(Clock::now() - start) / 10);
  EXPECT_LE(log.Count("cannot connect to chief:0"), lines) << log.text();
  EXPECT_LE(log.Count("ended before the peer proved its identity"), lines) << log.text();
}

TEST_F(IdentityOfCalls, FollowAKeyThatIsReplacedUnderARunningServer) {
  const auto chief = Make("chief:0");
  Start(chief);
  EXPECT_TRUE(Call(Make("worker:1"), "worker:1").ok());
  Write("one", Key('2'));
  chief->Refresh();
  // gRPC checks the certificates once per second.
  const MonotonicTime until = Clock::now() + std::chrono::minutes(1);
  grpc::Status called;
  while (called = Call(Make("worker:1", "two"), "worker:1"), !called.ok() && Clock::now() < until) {
  }
  EXPECT_TRUE(called.ok()) << called.error_message();
}

}  // namespace
}  // namespace muster::security
