// The lifetime of gRPC in this process.
#pragma once

namespace muster::rpc {

// Keeps gRPC initialized until the process ends. Without this call, gRPC shuts down when the last
// channel or server is destroyed. The destructor then waits up to 5 s for gRPC's threads.
// Thread-safe.
void RetainGrpc();

}  // namespace muster::rpc
