// The version of Muster.
#pragma once

#define MUSTER_VERSION "0.1.0"  // CMakeLists.txt reads the version from this line.

// The version of the interface between Muster and plugins (muster/stamp.h). Increase this number if
// a change in include/muster/ would make older plugins misbehave without an error.
#define MUSTER_PROGRAM_INTERFACE 2
