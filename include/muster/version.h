// The version of Muster, for people and programs.
#pragma once

#define MUSTER_VERSION "0.1.0"  // CMakeLists.txt reads it from here

// What a plugin is compiled against: goes up whenever a class or function of include/muster/
// changes in a way that a plugin built before would not notice.
#define MUSTER_PROGRAM_INTERFACE 2
