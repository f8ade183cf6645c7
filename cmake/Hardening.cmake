# What makes an error in memory less of use to whoever provokes it: relocations that are all done before main and read-only from
# then on, programs at random addresses; and unless MUSTER_HARDEN is off, checked copies (glibc's
# _FORTIFY_SOURCE, which needs optimisation) and a guard behind arrays on the stack. lint.hardening reads the binaries then.
# Not under sanitizers, which do more, and wrap the same functions.
option(MUSTER_HARDEN "Compile with _FORTIFY_SOURCE=3 and stack protector" ON)
if(NOT MUSTER_SANITIZE)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
  cmake_policy(SET CMP0083 NEW)
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  if(MUSTER_HARDEN)
    add_compile_options(-fstack-protector-strong $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
  endif()
endif()
