#include "deploy/preflight/path.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/rpc/host.h"
#include "deploy/preflight/sockets.h"

namespace muster::preflight {
namespace {

using std::chrono::milliseconds;

constexpr size_t kAnswerBytes = kTokenBytes + sizeof(uint32_t);
constexpr Duration kWarmUp = milliseconds(50);  // TCP's window still grows.
constexpr int kMaxPacket = 65535;
// Packets of this many bytes pass every path (RFC 791, RFC 8200).
constexpr int kLeastIPv4 = 576, kLeastIPv6 = 1280;
constexpr int kHeadersIPv4 = 28, kHeadersIPv6 = 48;  // IP and UDP.

bool Expired(const std::optional<MonotonicTime>& since, Duration limit) {
  return since && Clock::now() - *since >= limit;
}

// A UDP socket that is connected to the receiver and never fragments packets.
struct Prober {
  Fd socket;
  bool v6 = false;
  const std::string& token;
  Duration wait;  // Timeout of the first attempt, doubled for each later one.
  uint32_t sequence = 0;

  int Mtu() const {
    int mtu = 0;
    socklen_t length = sizeof mtu;
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, name = v6 ? IPV6_MTU : IP_MTU;
    return getsockopt(socket.get(), level, name, &mtu, &length) == 0 ? mtu : 0;
  }

  // Returns whether a packet of `size` bytes arrives. Makes up to three attempts.
  bool Passes(int size, MonotonicTime until) {
    std::vector<char> packet(static_cast<size_t>(size - (v6 ? kHeadersIPv6 : kHeadersIPv4)));
    std::memcpy(packet.data(), token.data(), kTokenBytes);
    for (int attempt = 0; attempt < 3 && Clock::now() < until; ++attempt) {
      ++sequence;
      std::memcpy(packet.data() + kTokenBytes, &sequence, sizeof sequence);
      if (send(socket.get(), packet.data(), packet.size(), MSG_DONTWAIT) < 0 && errno == EMSGSIZE &&
          size > Mtu())
        return false;  // Longer than this host's MTU.
      if (Answered(std::min(until, Clock::now() + (1 << attempt) * wait))) return true;
      if (size > Mtu()) return false;  // A router has reported a smaller MTU.
    }
    return false;
  }

  bool Answered(MonotonicTime until) const {
    while (WaitFor(socket.get(), POLLIN, until)) {
      char answer[kAnswerBytes + 1];
      const ssize_t n = recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN) return false;  // EMSGSIZE: ICMP reports a smaller MTU.
      if (n == kAnswerBytes && std::memcmp(answer, token.data(), kTokenBytes) == 0 &&
          std::memcmp(answer + kTokenBytes, &sequence, sizeof sequence) == 0)
        return true;
    }
    return false;
  }
};

absl::StatusOr<Prober> OpenProber(const std::string& own_host, const ProbePorts& to,
                                  Duration round_trip) {
  int port = 0;
  Prober prober{.token = to.token, .wait = std::max<Duration>(milliseconds(40), 4 * round_trip)};
  MUSTER_ASSIGN_OR_RETURN(prober.socket, BindTo(own_host, SOCK_DGRAM, &port));
  MUSTER_ASSIGN_OR_RETURN(const AddressList list,
                          Resolve(rpc::JoinHostPort(to.host, to.udp), SOCK_DGRAM, AI_NUMERICHOST));
  prober.v6 = list->ai_family == AF_INET6;
  const int level = prober.v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  // PROBE sets the don't-fragment bit, and sends packets that are longer than the known path MTU.
  const int discover = prober.v6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
  const int name = prober.v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER;
  if (setsockopt(prober.socket.get(), level, name, &discover, sizeof discover) != 0 ||
      connect(prober.socket.get(), list->ai_addr, list->ai_addrlen) != 0)
    return PeerLost(
        fmt::format("no route from {} to {}: {}", own_host, to.host, std::strerror(errno)));
  return prober;
}

}  // namespace

Json ToJson(const ProbePorts& ports) {
  std::string token;
  for (const unsigned char byte : ports.token) token += fmt::format("{:02x}", byte);
  return {{"host", ports.host}, {"udp", ports.udp}, {"tcp", ports.tcp}, {"token", token}};
}

absl::StatusOr<ProbePorts> ProbePortsFromJson(const Json& json) {
  ProbePorts ports;
  std::string token;
  JsonObject object(json, "ports");
  object.Read("host", &ports.host)
      .Read("udp", &ports.udp)
      .Read("tcp", &ports.tcp)
      .Read("token", &token);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  for (size_t i = 0; i + 1 < token.size(); i += 2)
    ports.token += static_cast<char>(std::strtoul(token.substr(i, 2).c_str(), nullptr, 16));
  const auto is_port = [](int port) { return port > 0 && port < 65536; };
  if (ports.token.size() != kTokenBytes || !is_port(ports.udp) || !is_port(ports.tcp))
    return PeerLost("it names no ports");
  return ports;
}

absl::StatusOr<PathReceiver> PathReceiver::Open(const std::string& host) {
  PathReceiver receiver;
  receiver.ports_.host = host;
  MUSTER_ASSIGN_OR_RETURN(receiver.udp_, BindTo(host, SOCK_DGRAM, &receiver.ports_.udp));
  MUSTER_ASSIGN_OR_RETURN(receiver.tcp_, BindTo(host, SOCK_STREAM, &receiver.ports_.tcp));
  receiver.ports_.token.resize(kTokenBytes);
  if (RAND_bytes(reinterpret_cast<unsigned char*>(receiver.ports_.token.data()), kTokenBytes) != 1)
    return PeerLost("OpenSSL returned no random numbers");
  return receiver;
}

void PathReceiver::Serve(int fd, MonotonicTime until) {
  while (Clock::now() < until) {
    // poll ignores negative descriptors.
    pollfd polled[] = {{fd, POLLIN, 0},
                       {udp_.get(), POLLIN, 0},
                       {transfer_ ? -1 : tcp_.get(), POLLIN, 0},
                       {transfer_.get(), POLLIN, 0}};
    // The end of a transfer's time causes no event.
    const MonotonicTime wake = transfer_ ? std::min(until, Clock::now() + milliseconds(20)) : until;
    poll(polled, std::size(polled), MillisecondsUntil(wake));
    if (polled[1].revents != 0) AnswerProbe();
    if (polled[2].revents != 0) Accept();
    if (transfer_) Count();
    if (polled[0].revents != 0) return;
  }
}

void PathReceiver::AnswerProbe() {
  std::vector<char> packet(kMaxPacket);
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const ssize_t n = recvfrom(udp_.get(), packet.data(), packet.size(), MSG_DONTWAIT,
                             reinterpret_cast<sockaddr*>(&from), &length);
  if (n < static_cast<ssize_t>(kAnswerBytes) || probes_left_ <= 0 ||
      std::memcmp(packet.data(), ports_.token.data(), kTokenBytes) != 0)
    return;
  --probes_left_;
  sendto(udp_.get(), packet.data(), kAnswerBytes, MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&from), length);
}

void PathReceiver::Accept() {
  Fd socket(accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0 || transfers_left_-- <= 0) return;
  head_.clear();
  first_ = Clock::now();
  counted_from_.reset();
  received_ = {};
  transfer_ = std::move(socket);
}

void PathReceiver::Count() {
  std::vector<char> bytes(256 * 1024);
  while (true) {
    const ssize_t n = recv(transfer_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return EndTransfer();
    if (Expired(first_, kTransfer)) return EndTransfer();
    if (n < 0) return;
    if (head_.size() < kTokenBytes) {
      head_.append(bytes.data(), std::min(static_cast<size_t>(n), kTokenBytes - head_.size()));
      if (ports_.token.compare(0, head_.size(), head_) != 0) return EndTransfer();
    }
    if (!counted_from_ && Expired(first_, kWarmUp)) {
      counted_from_ = Clock::now();
      received_.bytes = 0;
      continue;
    }
    received_.bytes += n;
    received_.seconds = Seconds(Clock::now() - counted_from_.value_or(*first_));
  }
}

// Ends the transfer. If bytes are unread, the close resets the connection, so the sender stops.
void PathReceiver::EndTransfer() {
  if (head_.size() < kTokenBytes || ports_.token != head_) received_ = {};
  transfer_.Reset();
}

absl::StatusOr<PathMtu> ProbeMtu(const std::string& own_host, const ProbePorts& to,
                                 Duration round_trip, MonotonicTime until) {
  MUSTER_ASSIGN_OR_RETURN(Prober prober, OpenProber(own_host, to, round_trip));
  PathMtu mtu;
  mtu.own = mtu.reported = std::min(prober.Mtu(), kMaxPacket);
  int passes = prober.v6 ? kLeastIPv6 : kLeastIPv4;
  if (mtu.own < passes || !prober.Passes(passes, until)) return mtu;
  int fails = mtu.own + 1;
  // Try common sizes first, because most paths have the MTU of the interface.
  for (int size : {mtu.own, 1500, 1280}) {
    if (size <= passes || size >= fails) continue;
    (prober.Passes(size, until) ? passes : fails) = size;
  }
  while (fails - passes > 1 && Clock::now() < until) {
    const int size = passes + (fails - passes) / 2;
    (prober.Passes(size, until) ? passes : fails) = size;
  }
  mtu.found = passes;
  mtu.reported = std::min(prober.Mtu(), mtu.own);
  return mtu;
}

absl::Status SendTransfer(const std::string& own_host, const ProbePorts& to, const PathMtu& mtu,
                          MonotonicTime until) {
  MUSTER_ASSIGN_OR_RETURN(const AddressList list,
                          Resolve(rpc::JoinHostPort(to.host, to.tcp), SOCK_STREAM, AI_NUMERICHOST));
  // A segment with the longest headers must fit into a packet that passes.
  const ConnectOptions options = {
      .own_host = own_host,
      .max_segment = std::max((mtu.found > 0 ? mtu.found : kLeastIPv6) - 120, kSmallSegment)};
  MUSTER_ASSIGN_OR_RETURN(const Fd socket, ConnectTo(*list, options, until));
  if (!SendText(socket.get(), to.token, until)) return PeerLost("the transfer could not start");
  const std::vector<char> zeros(256 * 1024);
  const MonotonicTime end = std::min(until, Clock::now() + 2 * kTransfer);
  while (WaitFor(socket.get(), POLLOUT, end)) {
    if (Clock::now() >= end) break;
    if (send(socket.get(), zeros.data(), zeros.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
        errno != EAGAIN)
      break;  // The receiver has closed the connection.
  }
  return absl::OkStatus();
}

}  // namespace muster::preflight
