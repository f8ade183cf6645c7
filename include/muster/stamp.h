// MUSTER_PROGRAM makes a shared library a plugin: a file with a program that Muster's binaries can
// load. Write in one of the library's source files, at namespace scope:
//
//   MUSTER_PROGRAM(MyProgram)   // a muster::Program with a default constructor
//
// The macro stores a stamp in the library: the versions of Muster, LibTorch and the standard
// library with which the library was built. Before a binary runs any code of the library, the
// binary compares this stamp with the binary's own stamp. A library that was built with other
// versions would misread memory.
#pragma once

#include <torch/version.h>

#include <string>  // Defines the macros that identify the standard library.

#include "muster/version.h"

#define MUSTER_TEXT_OF(value) #value
#define MUSTER_TEXT(macro) MUSTER_TEXT_OF(macro)

// The stamp names the standard library but not the compiler, because gcc and clang share the
// Itanium C++ ABI.
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
#define MUSTER_CXX_ABI "libstdc++ (C++11 ABI)"
#elif defined(__GLIBCXX__)
#define MUSTER_CXX_ABI "libstdc++ (old ABI)"
#else
#define MUSTER_CXX_ABI "libc++"
#endif

#define MUSTER_STAMP \
  "Muster " MUSTER_VERSION ", program interface " MUSTER_TEXT(MUSTER_PROGRAM_INTERFACE) ", "      \
  "LibTorch " TORCH_VERSION ", " MUSTER_CXX_ABI
#define MUSTER_STAMP_SECTION ".muster.stamp"

namespace muster {
class Program;
}

#define MUSTER_PROGRAM(Class)                                                                     \
  extern "C" {                                                                                    \
  [[gnu::visibility("default")]] ::muster::Program* muster_make_program() { return new Class(); } \
  [[gnu::visibility("default")]] extern const char muster_program_stamp[];                        \
  [[gnu::used, gnu::section(MUSTER_STAMP_SECTION)]] const char muster_program_stamp[] =           \
      MUSTER_STAMP;                                                                               \
  }
