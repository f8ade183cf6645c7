#include "tests/paths.h"

namespace muster::testing_support {

std::string SourceDir() { return MUSTER_SOURCE_DIR; }
std::string BinDir() { return MUSTER_BIN_DIR; }

}  // namespace muster::testing_support
