# The libraries that all programs share with their plugins, and the CMake package Muster, for programs built outside this
# tree (docs/extending.md):
#
#   libmuster_core.so   what of common/ and proto/ needs no LibTorch: all that `muster` and `muster-ps` are made of
#   libmuster.so        the rest of common/, on it
#
# The package works from what `cmake --install` puts beside the programs, wherever that is moved to, and from this build
# folder. Included last, when all libraries of programs are declared.
include(CMakePackageConfigHelpers)

# Which libraries go into one of the two, and which of them need LibTorch, themselves or by another.
get_property(_all GLOBAL PROPERTY MUSTER_LIBRARIES)
set(_core)
set(_torch)
foreach(_library ${_all})
  get_target_property(_folder ${_library} SOURCE_DIR)
  if(_folder MATCHES "^${PROJECT_SOURCE_DIR}/(common|proto)(/|$)")
    list(APPEND _core ${_library})
  endif()
endforeach()
set(_grew ON)
while(_grew)
  set(_grew OFF)
  foreach(_library ${_core})
    get_target_property(_dependencies ${_library} MUSTER_DEPENDS)
    foreach(_dependency ${_dependencies})
      if(_dependency MATCHES "^(muster::|muster_)?(torch|torch_cuda)$" OR muster_${_dependency} IN_LIST _torch)
        list(APPEND _torch ${_library})
        list(REMOVE_ITEM _core ${_library})
        set(_grew ON)
        break()
      endif()
    endforeach()
  endforeach()
endwhile()

# _muster_shared_library(TARGET OUTPUT_NAME LIBRARIES...): their objects in one shared library, with what they link that is
# not ours.
function(_muster_shared_library target output)
  add_library(${target} SHARED)
  foreach(library ${ARGN})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
    set_target_properties(${library} PROPERTIES MUSTER_SHARED_LIBRARY ${target})
    get_target_property(dependencies ${library} MUSTER_DEPENDS)
    foreach(dependency ${dependencies})
      if(dependency AND NOT muster_${dependency} IN_LIST _all)
        if(TARGET muster_${dependency})
          set(dependency muster_${dependency})
        endif()
        target_link_libraries(${target} PUBLIC ${dependency})
      endif()
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} VERSION ${PROJECT_VERSION} LINKER_LANGUAGE CXX
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_link_libraries(${target} PUBLIC Threads::Threads)
  if(NOT MUSTER_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  # Calls within the library are direct, as in a program; data stays one copy over all libraries.
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library)
endfunction()

_muster_shared_library(muster_core_shared muster_core ${_core})
target_include_directories(muster_core_shared SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/generated)
if(MUSTER_TORCH)
  _muster_shared_library(muster_shared muster ${_torch})
  target_link_libraries(muster_shared PUBLIC muster_core_shared)

  # The package, once for each place that it is used from.
  set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/Muster)
  set(MUSTER_PACKAGE_TORCH_ROOT ${MUSTER_TORCH_ROOT})
  set(MUSTER_PACKAGE_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
  set(MUSTER_PACKAGE_LIB ${CMAKE_INSTALL_LIBDIR})
  set(MUSTER_PACKAGE_BIN ${CMAKE_INSTALL_BINDIR})
  set(_paths PATH_VARS MUSTER_PACKAGE_INCLUDE MUSTER_PACKAGE_LIB MUSTER_PACKAGE_BIN NO_SET_AND_CHECK_MACRO)
  configure_package_config_file(cmake/MusterConfig.cmake.in ${PROJECT_BINARY_DIR}/package/MusterConfig.cmake
                                INSTALL_DESTINATION ${_package} ${_paths})
  set(MUSTER_PACKAGE_INCLUDE ${PROJECT_SOURCE_DIR}/include)
  set(MUSTER_PACKAGE_LIB ${PROJECT_BINARY_DIR}/lib)
  set(MUSTER_PACKAGE_BIN ${PROJECT_BINARY_DIR}/bin)
  configure_package_config_file(cmake/MusterConfig.cmake.in ${PROJECT_BINARY_DIR}/MusterConfig.cmake
                                INSTALL_DESTINATION ${PROJECT_BINARY_DIR} ${_paths})
  # The interfaces still move with every minor version.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/MusterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  set(_scripts cmake/Torch.cmake cmake/MusterProgram.cmake)
  file(COPY ${_scripts} DESTINATION ${PROJECT_BINARY_DIR})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_scripts})
  install(FILES ${PROJECT_BINARY_DIR}/package/MusterConfig.cmake ${PROJECT_BINARY_DIR}/MusterConfigVersion.cmake ${_scripts}
          DESTINATION ${_package} COMPONENT library)
  install(DIRECTORY include/muster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN "*.h")
endif()

# The bill of materials, as SPDX.
file(GLOB _lists ${PROJECT_SOURCE_DIR}/deploy/packages*.txt ${PROJECT_SOURCE_DIR}/deploy/requirements*.lock)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/muster.spdx.json
                   COMMAND ${PROJECT_SOURCE_DIR}/deploy/sbom ${PROJECT_VERSION} ${PROJECT_BINARY_DIR}/muster.spdx.json
                   DEPENDS ${PROJECT_SOURCE_DIR}/deploy/sbom ${_lists} VERBATIM)
add_custom_target(sbom ALL DEPENDS ${PROJECT_BINARY_DIR}/muster.spdx.json)
# Absent if only some programs were built.
install(FILES ${PROJECT_BINARY_DIR}/muster.spdx.json DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/muster COMPONENT programs OPTIONAL)
