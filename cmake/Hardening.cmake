# What makes an error in memory less of use to whoever provokes it: checked copies (glibc's _FORTIFY_SOURCE, which needs
# optimisation), a guard behind arrays on the stack, relocations that are all done before main and read-only from then on, and
# programs at random addresses. lint.hardening reads the binaries. Not under sanitizers, which do more, and wrap the same functions.
option(MUSTER_HARDEN "Build with hardening flags (cmake/Hardening.cmake)" ON)
if(MUSTER_HARDEN AND NOT MUSTER_SANITIZE)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
  cmake_policy(SET CMP0083 NEW)
  add_compile_options(-fstack-protector-strong $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
