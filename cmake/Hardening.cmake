# Flags that make a memory error harder to exploit: all relocations are done before main and are read-only afterwards, and programs
# load at random addresses. Unless MUSTER_HARDEN is off, copies are checked (glibc's _FORTIFY_SOURCE, which needs optimisation) and
# arrays on the stack have a guard. lint.hardening checks the binaries. Sanitizer builds omit these flags, because sanitizers check
# more and wrap the same functions.
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
