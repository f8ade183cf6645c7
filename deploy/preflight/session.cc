#include "deploy/preflight/session.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/peer_text.h"
#include "common/cluster/task.h"
#include "common/transport/tls_stream.h"
#include "deploy/preflight/sockets.h"

namespace muster::preflight {
namespace {

constexpr char kFormat[] = "muster_preflight_session";

struct Opening {
  int64_t format = 0;
  std::string task, cluster_digest, error;
  bool tls = false;
};

std::string OpeningLine(const PeerSessionOptions& options, const std::string& error = "") {
  return Dump(Json{{kFormat, 1},
                   {"task", options.self},
                   {"cluster_digest", options.cluster_digest},
                   {"tls", options.identity != nullptr},
                   {"error", error}}) +
         '\n';
}

absl::StatusOr<Opening> ReadOpening(const std::string& line) {
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(line, "session"));
  Opening opening;
  JsonObject object(json, "session");
  object.Read(kFormat, &opening.format)
      .Read("task", &opening.task)
      .Read("cluster_digest", &opening.cluster_digest)
      .Read("tls", &opening.tls)
      .Read("error", &opening.error);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  opening.error = SanitizePeerText(opening.error, 200);
  return opening;
}

// Returns why this task refuses a session with `other`, "" if it accepts.
std::string Refusal(const PeerSessionOptions& options, const Opening& other) {
  if (!ParseTaskId(other.task) || other.task == options.self) return "it names no other task";
  if (other.cluster_digest != options.cluster_digest) return "its cluster is another one";
  if (other.tls != (options.identity != nullptr))
    return "one side has a run key or certificates, and the other one has none";
  return other.error;
}

}  // namespace

bool PeerSession::Begins(const std::string& line) {
  return line.find(std::string("\"") + kFormat + '"') != std::string::npos;
}

absl::StatusOr<std::unique_ptr<PeerSession>> PeerSession::Dial(const PeerSessionOptions& options,
                                                               const std::string& task,
                                                               const std::string& address,
                                                               MonotonicTime until) {
  MUSTER_ASSIGN_OR_RETURN(const AddressList list, Resolve(address, SOCK_STREAM, 0));
  absl::StatusOr<Fd> socket = PeerLost("no address");
  for (const addrinfo* a = list.get(); a != nullptr && !socket.ok(); a = a->ai_next)
    socket = ConnectTo(*a, {}, until);
  MUSTER_RETURN_IF_ERROR(socket.status());
  if (!SendText(socket->get(), OpeningLine(options), until))
    return PeerLost("connected, but cannot send");
  const absl::StatusOr<Opening> other = ReadOpening(ReceiveLine(socket->get(), until));
  if (!other.ok()) return PeerLost("it opens no session (has its preflight ended?)");
  if (const std::string why = Refusal(options, *other); !why.empty())
    return PeerLost("no session: " + why);
  if (other->task != task) return PeerLost(fmt::format("{} answers there", other->task));
  std::unique_ptr<PeerSession> session(
      new PeerSession(transport::MakeTcpStream(socket->Release())));
  session->peer_ = task;
  MUSTER_RETURN_IF_ERROR(session->Secure(options, /*server=*/false, address, until));
  return session;
}

absl::StatusOr<std::unique_ptr<PeerSession>> PeerSession::Accept(const PeerSessionOptions& options,
                                                                 Fd socket, const std::string& line,
                                                                 MonotonicTime until) {
  MUSTER_ASSIGN_OR_RETURN(const Opening other, ReadOpening(line));
  const std::string why = Refusal(options, other);
  if (!SendText(socket.get(), OpeningLine(options, why), until) || !why.empty())
    return PeerLost("no session: " + why);
  std::unique_ptr<PeerSession> session(new PeerSession(transport::MakeTcpStream(socket.Release())));
  session->peer_ = other.task;
  MUSTER_RETURN_IF_ERROR(session->Secure(options, /*server=*/true, "", until));
  return session;
}

absl::Status PeerSession::Secure(const PeerSessionOptions& options, bool server,
                                 const std::string& address, MonotonicTime until) {
  if (options.identity == nullptr) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(security::SslPtr ssl, options.identity->NewSession(server, address));
  MUSTER_ASSIGN_OR_RETURN(auto stream,
                          transport::TlsStream::Make(std::move(stream_), std::move(ssl)));
  transport::TlsStream& tls = *stream;
  stream_ = std::move(stream);
  while (true) {
    MUSTER_ASSIGN_OR_RETURN(const bool done, tls.Handshake());
    if (done) break;
    MUSTER_RETURN_IF_ERROR(Wait(/*read=*/true, until));
  }
  MUSTER_ASSIGN_OR_RETURN(const security::Peer peer, options.identity->PeerOf(tls.session()));
  if (peer.task == peer_) return absl::OkStatus();
  return PeerLost(fmt::format("its certificate is that of {}, not of {}", peer.task, peer_));
}

absl::StatusOr<Json> PeerSession::Ask(const Json& question, MonotonicTime until) {
  MUSTER_RETURN_IF_ERROR(Send(question, until));
  MUSTER_ASSIGN_OR_RETURN(Json answer, Receive(until));
  if (!answer.is_object()) return PeerLost("its answer is not a JSON object");
  if (const auto error = answer.find("error"); error != answer.end())
    return PeerLost(error->is_string() ? SanitizePeerText(error->get<std::string>(), 300)
                                       : "its answer is an error without a text");
  return answer;
}

absl::Status PeerSession::Send(const Json& message, MonotonicTime until) {
  const std::string text = Dump(message);
  if (text.size() > kMaxMessage) return ConfigurationError("a message is longer than 4 MiB");
  const auto size = static_cast<uint32_t>(text.size());
  const char head[4] = {static_cast<char>(size), static_cast<char>(size >> 8),
                        static_cast<char>(size >> 16), static_cast<char>(size >> 24)};
  const std::string whole = std::string(head, sizeof head) + text;
  return WriteAll(whole.data(), whole.size(), until);
}

absl::StatusOr<Json> PeerSession::Receive(MonotonicTime until) {
  unsigned char head[4];
  MUSTER_RETURN_IF_ERROR(ReadAll(reinterpret_cast<char*>(head), sizeof head, until));
  const size_t size =
      head[0] | size_t{head[1]} << 8 | size_t{head[2]} << 16 | size_t{head[3]} << 24;
  if (size > kMaxMessage) return PeerLost("it sends a message of more than 4 MiB");
  std::string text(size, '\0');
  MUSTER_RETURN_IF_ERROR(ReadAll(text.data(), size, until));
  absl::StatusOr<Json> json = ParseJson(text, "session");
  if (!json.ok()) return PeerLost("it sends no JSON");
  return json;
}

absl::Status PeerSession::Wait(bool read, MonotonicTime until) const {
  if (read && stream_->Buffered()) return absl::OkStatus();
  if (WaitFor(stream_->fd(), stream_->PollEvents(read, !read), until)) return absl::OkStatus();
  return DeadlinePassed("it did not answer in time");
}

absl::Status PeerSession::ReadAll(char* bytes, size_t size, MonotonicTime until) {
  for (size_t at = 0; at < size;) {
    const iovec into{bytes + at, size - at};
    MUSTER_ASSIGN_OR_RETURN(const size_t n, stream_->Read({&into, 1}));
    at += n;
    if (n == 0) MUSTER_RETURN_IF_ERROR(Wait(/*read=*/true, until));
  }
  return absl::OkStatus();
}

absl::Status PeerSession::WriteAll(const char* bytes, size_t size, MonotonicTime until) {
  for (size_t at = 0; at < size;) {
    const iovec from{const_cast<char*>(bytes) + at, size - at};
    MUSTER_ASSIGN_OR_RETURN(const size_t n, stream_->Write({&from, 1}));
    at += n;
    if (n == 0) MUSTER_RETURN_IF_ERROR(Wait(/*read=*/false, until));
  }
  return absl::OkStatus();
}

}  // namespace muster::preflight
