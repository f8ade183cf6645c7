// The lifetime of gRPC in this process.
#pragma once

namespace muster::rpc {

// Keeps gRPC initialized until the process ends. Without a call of RetainGrpc, gRPC shuts down when
// the last channel or server is destroyed, and the destroying thread waits for gRPC's threads for
// up to 5 s. Thread-safe.
void RetainGrpc();

}  // namespace muster::rpc
