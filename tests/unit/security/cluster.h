// The cluster that tests of identities and their authorities are in.
#pragma once

namespace muster::security {

inline constexpr char kCluster[] = "0123456789abcdef";

}  // namespace muster::security
