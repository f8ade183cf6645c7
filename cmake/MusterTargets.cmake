# Functions that declare libraries, programs and tests: one line each, in the folder's own CMakeLists.txt.

# muster_library(NAME SOURCES... [DEPENDS ...] [PROTOS ...]): a static library 'muster_NAME', alias 'muster::NAME'.
# DEPENDS are names of other muster libraries (without the prefix) or any CMake target.
function(muster_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPENDS")
  add_library(muster_${name} STATIC ${ARG_SOURCES} ${ARG_UNPARSED_ARGUMENTS})
  add_library(muster::${name} ALIAS muster_${name})
  target_link_libraries(muster_${name} PUBLIC muster_flags)
  _muster_link(muster_${name} ${ARG_DEPENDS})
  set_target_properties(muster_${name} PROPERTIES MUSTER_DEPENDS "${ARG_DEPENDS}")
  _muster_precompile(muster_${name})
  set_property(GLOBAL APPEND PROPERTY MUSTER_LIBRARIES muster_${name})
endfunction()

# muster_binary(NAME SOURCES... DEPENDS...): a program in bin/ of the build folder, installed. It links libmuster_core.so and
# libmuster.so, which it shares with the modules and plugins that it loads.
function(muster_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPENDS")
  add_executable(${name} ${ARG_SOURCES} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE muster_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin ENABLE_EXPORTS ON
                                           MUSTER_LINKS_SHARED ${MUSTER_SHARED} INSTALL_RPATH "${MUSTER_BIN_RPATH}")
  _muster_link(${name} ${ARG_DEPENDS})
  muster_tsan_knows_absl(${name})
  muster_allocator(${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endfunction()

# muster_allocator(TARGET): the memory allocator of our programs.
function(muster_allocator target)
  if(MUSTER_TCMALLOC AND NOT MUSTER_SANITIZE)
    # glibc returns big blocks to the kernel at each step; tcmalloc keeps its pages. One option: CMake drops a repeated
    # -Wl,--pop-state, and abseil brings its own.
    target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed,${MUSTER_TCMALLOC},--pop-state)
  endif()
endfunction()

# muster_test(NAME SOURCES... DEPENDS... [LABEL unit] [SHARDS n | CASES] [SLOW CASE...]): a GoogleTest binary. All its
# cases are one ctest entry, LABEL.NAME: to start a program takes longer than most cases. SHARDS: they are n entries, LABEL.NAME.1
# and so on, which run side by side. Cases that wait for seconds by nature are named after SLOW; they are another entry,
# LABEL.NAME.slow, with the label `slow` besides. CASES: one entry for each case, by its name, so that ctest counts those that skip
# themselves.
function(muster_test name)
  if(NOT BUILD_TESTING OR name IN_LIST MUSTER_TSAN_LEAVES_OUT)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "CASES" "LABEL;SHARDS" "SOURCES;DEPENDS;SLOW")
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE muster_flags GTest::gmock_main muster_test_paths)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  _muster_link(${name} ${ARG_DEPENDS})
  muster_tsan_knows_absl(${name})
  _muster_test_compiles_quickly(${name})
  muster_unity_build(4 ${name})
  if(ARG_LABEL STREQUAL unit)
    if(NOT TARGET unit_tests)
      add_custom_target(unit_tests)  # all of them, for `make test-unit`
    endif()
    add_dependencies(unit_tests ${name})
  endif()
  if(ARG_CASES)
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 LABELS ${ARG_LABEL})
    return()
  endif()
  set(timeout 480)
  set(entry ${ARG_LABEL}.${name})
  list(JOIN ARG_SLOW ":" cases)
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(part ${entry})
    if(ARG_SHARDS GREATER 1)
      string(APPEND part .${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${part} COMMAND ${name} --gtest_filter=-${cases})
    set_tests_properties(${part} PROPERTIES TIMEOUT ${timeout} LABELS ${ARG_LABEL}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
  if(ARG_SLOW)
    add_test(NAME ${entry}.slow COMMAND ${name} --gtest_filter=${cases})
    # A filter that no case matches would pass.
    set_tests_properties(${entry}.slow PROPERTIES TIMEOUT ${timeout} LABELS "${ARG_LABEL};slow" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  endif()
endfunction()

# A target with the property MUSTER_LINKS_SHARED links the shared library that a library of ours is in (the property
# MUSTER_SHARED_LIBRARY, set in MusterPackage.cmake) in its place, also where another library brings it; others link ours.
function(_muster_link target)
  foreach(dependency ${ARGN})
    if(dependency MATCHES "^[a-z_]+$" AND NOT dependency STREQUAL CMAKE_DL_LIBS AND NOT TARGET ${dependency})
      # A library of ours, perhaps of a folder that comes later.
      set(static muster_${dependency})
      set(shared $<TARGET_PROPERTY:${static},MUSTER_SHARED_LIBRARY>)
      target_link_libraries(${target} PUBLIC
        $<IF:$<AND:$<BOOL:$<TARGET_PROPERTY:MUSTER_LINKS_SHARED>>,$<BOOL:${shared}>>,${shared},${static}>)
    else()
      target_link_libraries(${target} PUBLIC ${dependency})
    endif()
  endforeach()
endfunction()

# muster_proto(NAME FILES...): C++ for .proto files in this folder; include "proto/x.pb.h" and, for a file with a service, "proto/x.grpc.pb.h".
function(muster_proto name)
  set(generated)
  find_program(MUSTER_PROTOC protoc REQUIRED)
  find_program(MUSTER_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    set(out ${PROJECT_BINARY_DIR}/generated/proto/${stem})
    set(sources ${out}.pb.cc)
    set(headers ${out}.pb.h)
    set(grpc)
    file(STRINGS ${file} services REGEX "^service ")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    if(services)
      list(APPEND sources ${out}.grpc.pb.cc)
      list(APPEND headers ${out}.grpc.pb.h)
      set(grpc --grpc_out=${PROJECT_BINARY_DIR}/generated --plugin=protoc-gen-grpc=${MUSTER_GRPC_PLUGIN})
    endif()
    add_custom_command(
      OUTPUT ${sources} ${headers}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/generated
      COMMAND ${MUSTER_PROTOC} -I${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR}/generated ${grpc} ${PROJECT_SOURCE_DIR}/proto/${file}
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${file} VERBATIM)
    list(APPEND generated ${sources})
  endforeach()
  add_library(muster_${name} STATIC ${generated})
  add_library(muster::${name} ALIAS muster_${name})
  target_include_directories(muster_${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>)
  target_link_libraries(muster_${name} PUBLIC gRPC::grpc++ protobuf::libprotobuf)
  set_property(GLOBAL APPEND PROPERTY MUSTER_LIBRARIES muster_${name})
endfunction()

# muster_unity_build(COUNT TARGET...): the compiler gets COUNT sources of these targets as one unit, reads their headers once and
# instantiates their templates once. They share an unnamed namespace. CMake leaves out sources with options of their own.
option(MUSTER_UNITY_BUILD "Compile several sources of a library or test as one unit; OFF: each by itself, for tools that read compile_commands.json" ON)
function(muster_unity_build count)
  if(MUSTER_UNITY_BUILD)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
  endif()
endfunction()

# A target HEADER that precompiles HEADERS, as a library with LINKS sees them.
function(_muster_precompiled_header header)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LINKS;HEADERS")
  if(NOT EXISTS ${PROJECT_BINARY_DIR}/generated/${header}.cc)  # A newer file would compile everything again.
    file(WRITE ${PROJECT_BINARY_DIR}/generated/${header}.cc "")
  endif()
  add_library(${header} OBJECT ${PROJECT_BINARY_DIR}/generated/${header}.cc)
  target_link_libraries(${header} PRIVATE muster_flags ${ARG_LINKS})
  target_precompile_headers(${header} PRIVATE ${ARG_HEADERS})
  target_compile_options(${header} PRIVATE -pthread -fpch-preprocess)  # the latter for ccache
endfunction()

# With -O1, gcc 12 warns of code of the standard library itself if that comes from a precompiled header.
set(MUSTER_FALSE_WARNINGS -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)

# The options, but those for warnings, are the header's own.
function(_muster_use_precompiled target header)
  target_compile_options(${target} PRIVATE -pthread -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()

set(MUSTER_COMMON_HEADERS <absl/status/statusor.h> <absl/synchronization/mutex.h> <algorithm> <charconv> <cmath> <deque> <filesystem>
  <fmt/format.h> <fmt/ranges.h> <functional> <map> <memory> <nlohmann/json.hpp> <optional> <set> <span> <string> <string_view> <thread>
  <variant> <vector>)
set(MUSTER_COMMON_LINKS fmt::fmt nlohmann_json::nlohmann_json absl::statusor absl::synchronization)

# Libraries compile against a precompiled header of what nearly all files include. One without fmt, which is in it, has the
# property DISABLE_PRECOMPILE_HEADERS; sources with code generation options of their own have SKIP_PRECOMPILE_HEADERS. A folder
# whose sources all have such options sets MUSTER_PRECOMPILED to the name of a header that is compiled with them.
set(MUSTER_PRECOMPILED muster_precompiled)
function(_muster_precompile target)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()  # the options are gcc's
  endif()
  set(header ${MUSTER_PRECOMPILED})
  if(NOT TARGET ${header})
    _muster_precompiled_header(${header}
      LINKS ${MUSTER_COMMON_LINKS}
      HEADERS ${MUSTER_COMMON_HEADERS})
  endif()
  _muster_use_precompiled(${target} ${header})
endfunction()

# Tests compile against a precompiled header with GoogleMock in it, and with -O1: they run for milliseconds and compile for seconds.
function(_muster_test_compiles_quickly test)
  target_compile_options(${test} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  set(header muster_precompiled_tests)
  if(NOT TARGET ${header})
    _muster_precompiled_header(${header}
      LINKS ${MUSTER_COMMON_LINKS} GTest::gmock
      HEADERS ${MUSTER_COMMON_HEADERS} <gmock/gmock.h>)
    _muster_compiles_as_a_test(${header})
  endif()
  _muster_use_precompiled(${test} ${header})
  target_compile_options(${test} PRIVATE ${MUSTER_FALSE_WARNINGS})
endfunction()

# Compiles the header like the files of a program, not those of a library.
function(_muster_compiles_as_a_test header)
  set_target_properties(${header} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${header} PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
endfunction()

# muster_precompile_torch(TARGET...): these compile against a precompiled header of ATen, which is most of what their files
# cost. Libraries share one, tests another with GoogleMock in it.
function(muster_precompile_torch)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  foreach(target ${ARGN})
    get_target_property(type ${target} TYPE)
    set(header muster_precompiled_torch)
    if(type STREQUAL EXECUTABLE)
      set(header muster_precompiled_torch_tests)
    endif()
    if(NOT TARGET ${header})
      _muster_precompiled_header(${header}
        LINKS muster::torch fmt::fmt nlohmann_json::nlohmann_json absl::statusor
        HEADERS <ATen/Functions.h> <ATen/TensorOperators.h> <ATen/core/grad_mode.h> <absl/status/statusor.h> <algorithm> <fmt/format.h>
          <functional> <map> <memory> <nlohmann/json.hpp> <optional> <string> <vector>)
      if(type STREQUAL EXECUTABLE)
        target_link_libraries(${header} PRIVATE GTest::gmock)
        target_precompile_headers(${header} PRIVATE <gmock/gmock.h>)
        _muster_compiles_as_a_test(${header})
      endif()
    endif()
    _muster_use_precompiled(${target} ${header})
  endforeach()
endfunction()
