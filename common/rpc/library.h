// The lifetime of gRPC in this process.
#pragma once

namespace muster::rpc {

// Keeps gRPC initialized from the first call until the process ends. Without this call, gRPC shuts
// down when the last channel or server is destroyed. The destroying thread then waits for gRPC's
// threads for up to 5 s. Thread-safe.
void RetainGrpc();

}  // namespace muster::rpc
