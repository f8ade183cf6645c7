// Requests the status of a running chief. Not thread-safe.
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

// A server's certificate, not verified.
struct ServerCertificate {
  security::Peer peer;  // The task and the cluster that it names.
  std::string issuer;   // The name of the authority that signed it.
};
// Connects to the server and returns its certificate, or nullopt if it does not use TLS. Returns
// PeerLost if it cannot be reached within `timeout`.
absl::StatusOr<std::optional<ServerCertificate>> CertificateOfServer(const std::string& address,
                                                                     Duration timeout);

// Opens the run key of the `muster launch` that started the process `pid` of this host. Returns an
// empty Fd if the process has none or belongs to another user.
Fd OpenKeyOfLauncher(int64_t pid);

struct ChiefLinkOptions {
  std::string address;    // "host:port".
  std::string key_file;   // Empty: the key file of the job, the launcher or the user.
  Job job;                // Only tls and security are used.
  int64_t chief_pid = 0;  // The pid of a chief on this host, 0 if unknown.
};

// Returns the sentence for a chief that demands an identity of a caller who has none.
std::string RequiresIdentity(const std::string& address);

// Finds the credentials for a channel to the chief. A run key is enough, because the server's
// certificate names the cluster. Returns ConfigurationError if the chief has another key. With a
// key, connects to the chief, and returns PeerLost if it cannot be reached within `timeout`.
// Without a key, does not connect.
absl::StatusOr<rpc::ChannelOptions> ChannelToChief(const ChiefLinkOptions& options,
                                                   Duration timeout);

class ChiefLink {
 public:
  // Returns the errors of ChannelToChief.
  static absl::StatusOr<std::unique_ptr<ChiefLink>> Open(const ChiefLinkOptions& options,
                                                         Duration timeout);
  // Returns PeerLost if the chief cannot be reached within `timeout`, and ConfigurationError if it
  // requires a key or is not a chief.
  absl::StatusOr<proto::StatusReply> Ask(Duration timeout);

 private:
  ChiefLink(std::string address, bool has_identity, std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)),
        has_identity_(has_identity),
        stub_(proto::Coordinator::NewStub(std::move(channel))) {}

  const std::string address_;
  const bool has_identity_;
  const std::unique_ptr<proto::Coordinator::Stub> stub_;
};

}  // namespace muster::status
