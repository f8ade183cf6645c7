// The folders of the sources and of the programs under test. They are compiled into one small
// library and not into each test: ccache can then share the objects of all tests between two
// clones.
#pragma once

#include <string>

namespace muster::testing_support {

// The absolute path of the top of the sources.
std::string SourceDir();
// The absolute path of the folder with `muster` and the other programs.
std::string BinDir();

}  // namespace muster::testing_support
