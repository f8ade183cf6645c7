// Asks a running chief for its status. One thread.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "common/job/job.h"
#include "common/security/identity.h"
#include "muster/status.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster::status {

// The certificate that a server shows. Nobody has checked it yet.
struct ServerCertificate {
  security::Peer peer;  // The task and the cluster that it names.
  std::string issuer;   // The name of the authority that signed it.
};
// Connects to the server, and returns its certificate, or nullopt if it speaks no TLS. Returns
// PeerLost if it cannot be reached within `timeout`.
absl::StatusOr<std::optional<ServerCertificate>> CertificateOfServer(const std::string& address,
                                                                     Duration timeout);

// Opens the run key of the `muster launch` that started the process `pid` of this host. Returns no
// descriptor if there is none, or if it belongs to another user.
Fd OpenKeyOfLauncher(int64_t pid);

struct ChiefLinkOptions {
  std::string address;    // "host:port".
  std::string key_file;   // Empty: that of the job, of the launcher, or the default one.
  Job job;                // Its tls and security are used.
  int64_t chief_pid = 0;  // Of a chief on this host, to find its launcher. 0: unknown.
};

class ChiefLink {
 public:
  // Finds out how to call the chief. The server's certificate names the cluster, so a run key is
  // enough. Returns ConfigurationError if the chief has another key. With a key, returns PeerLost
  // if the chief cannot be reached within `timeout`; without one, the first Ask finds that out.
  static absl::StatusOr<std::unique_ptr<ChiefLink>> Open(const ChiefLinkOptions& options,
                                                         Duration timeout);
  // Returns PeerLost if the chief is not reached, and ConfigurationError if it asks for a key.
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
