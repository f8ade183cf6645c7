// Which pushes of lost workers are in the servers in part: torn ones, each counted once, however
// many servers have a part of it. Pure bookkeeping, no I/O; for one thread at a time.
//
// Only a process's newest push can be torn: the next one begins when all of the one before is
// acknowledged. It is whole where each server to which it went has all of its chunks, or the worker
// told the chief that it was.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "proto/parameter_server.pb.h"

namespace muster {

class LostPushes {
 public:
  using Process = std::pair<int, uint64_t>;  // worker, incarnation

  // What servers tell, again and again; also of shards of which they are backup.
  void Take(const google::protobuf::RepeatedPtrField<proto::LostPush>& pushes);
  // `told`: the newest sequence that each process called whole.
  int64_t torn(const std::map<Process, uint64_t>& told) const;

 private:
  std::map<Process, std::map<int, proto::LostPush>> pushes_;  // by shard
};

}  // namespace muster
