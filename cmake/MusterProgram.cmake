# muster_add_program(NAME source...): NAME.so, a program that Muster's binaries load where a job's "program" is its path. One
# of the sources says MUSTER_PROGRAM(Class).
function(muster_add_program name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE muster::muster)
  # Hidden: what a program defines never stands in for a function of the same name in the binary that loads it.
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .so CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                           CXX_EXTENSIONS OFF)
  # Finds missing symbols now, and not after the start of a job.
  target_link_options(${name} PRIVATE -Wl,--no-undefined)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(${name} PRIVATE -O2)
  endif()
endfunction()
