// One connection of a primary to its backup: a question, an answer. One thread uses it at a time.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "ps/replication.h"
#include "ps/replication_wire.h"

namespace muster::ps {

class ReplicaLink {
 public:
  ReplicaLink(std::unique_ptr<transport::DataConnection> connection,
              const ReplicationOptions& options)
      : connection_(std::move(connection)), options_(options) {}

  // Says what this connection is for; the answer tells what the backup holds, if that is wanted.
  absl::Status Open(MonotonicTime deadline, std::vector<DenseStore::Standing>* standings);
  // The payload in two pieces. False: what the frame follows was replaced by a later state. After
  // an error the connection is of no use any more.
  using Payload = std::array<std::span<const std::byte>, 2>;
  absl::StatusOr<bool> Ask(ReplicaKind kind, ReplicaFrame frame, Payload payload,
                           MonotonicTime deadline);

 private:
  absl::StatusOr<ReplicaFrame> Receive(ReplicaKind kind, std::string* payload,
                                       MonotonicTime deadline);

  const std::unique_ptr<transport::DataConnection> connection_;
  const ReplicationOptions& options_;
};

// Opens them, each with a channel of its own. The options outlive it and its links. Any thread.
class ReplicaDialer {
 public:
  explicit ReplicaDialer(const ReplicationOptions& options) : options_(options) {}
  absl::StatusOr<std::unique_ptr<ReplicaLink>> Dial(MonotonicTime deadline,
                                                    std::vector<DenseStore::Standing>* standings);

 private:
  const ReplicationOptions& options_;
  std::atomic<uint32_t> channel_ = 0;
};

}  // namespace muster::ps
