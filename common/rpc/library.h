// The lifetime of gRPC in this process.
#pragma once

namespace muster::rpc {

// Keeps gRPC initialized from the first call until the process ends. Otherwise gRPC shuts down with
// the last channel or server. The thread that releases it then waits for gRPC's threads, one of
// which may poll for another 5 s. Thread-safe.
void KeepGrpc();

}  // namespace muster::rpc
