// The version of Muster.
#pragma once

#define MUSTER_VERSION "0.1.0"  // CMakeLists.txt reads it from here

// The interface version that a plugin is compiled against. Increase it whenever a class or function
// of include/muster/ changes in a way that an older plugin would not detect.
#define MUSTER_PROGRAM_INTERFACE 2
