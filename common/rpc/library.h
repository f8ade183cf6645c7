// gRPC's own life in this process.
#pragma once

namespace muster::rpc {

// From the first call on gRPC stays until the process ends. Without it gRPC shuts down with the
// last channel or server, and the thread that lets go of that one waits for gRPC's threads, of
// which one may poll for another 5 s. Any thread may call it.
void KeepGrpc();

}  // namespace muster::rpc
