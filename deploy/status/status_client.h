// Requests the status of a job from its running chief (the task that leads the job). Not
// thread-safe.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "common/job/job.h"
#include "common/rpc/channel.h"
#include "common/security/identity.h"
#include "muster/status.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster::status {

// The TLS certificate that a server has sent. The certificate has not been verified.
struct ServerCertificate {
  security::Peer peer;  // The task and the cluster in the certificate.
  std::string issuer;   // The certificate authority that signed the certificate.
};
// Connects to the server at `address` and returns the server's certificate. Returns nullopt if the
// server has no TLS, and PeerLost (muster/status.h) if it cannot be reached within `timeout`.
absl::StatusOr<std::optional<ServerCertificate>> CertificateOfServer(const std::string& address,
                                                                     Duration timeout);

// `pid` is a process of this host. If `muster launch` started the process with a run key in memory
// (docs/security.md), opens this key. Returns an empty Fd if there is no such key, or if the
// process belongs to another user.
Fd OpenKeyOfLauncher(int64_t pid);

struct ChiefChannelOptions {
  std::string address;    // "host:port".
  std::string key_file;   // Path of a run key file. Empty: the job's, launcher's or user's key.
  Job job;                // Only tls and security are used.
  int64_t chief_pid = 0;  // The pid of the chief if it is on this host, or 0.
};

// Returns the error message for a caller without a key or certificate, after the chief has refused
// the call.
std::string RequiresIdentity(const std::string& address);

// Finds the credentials for a gRPC channel to the chief. If there is a run key or a certificate,
// connects to the chief to read the chief's certificate, which names the cluster. Returns
// ConfigurationError if the chief has another key. Returns PeerLost if the chief cannot be reached
// within `timeout`. If there is no key or certificate, does not connect.
absl::StatusOr<rpc::ChannelOptions> ChannelToChief(const ChiefChannelOptions& options,
                                                   Duration timeout);

class StatusClient {
 public:
  // Calls ChannelToChief to find the credentials, and returns the errors of ChannelToChief.
  static absl::StatusOr<std::unique_ptr<StatusClient>> Open(const ChiefChannelOptions& options,
                                                            Duration timeout);
  // Requests the status. Returns PeerLost if the chief cannot be reached within `timeout`. Returns
  // ConfigurationError if the chief requires a key, or if the server is not a chief.
  absl::StatusOr<proto::StatusReply> Ask(Duration timeout);

 private:
  StatusClient(std::string address, bool has_identity, std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)),
        has_identity_(has_identity),
        stub_(proto::Coordinator::NewStub(std::move(channel))) {}

  const std::string address_;
  const bool has_identity_;
  const std::unique_ptr<proto::Coordinator::Stub> stub_;
};

}  // namespace muster::status
