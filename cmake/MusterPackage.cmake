# What `cmake --install` puts beside the programs: libmuster.so, all of common/ and proto/ in one shared library; its
# headers; and the CMake package Muster, for programs built outside this tree:
#
#   find_package(Muster REQUIRED)
#   target_link_libraries(my_tool PRIVATE muster::muster)
#
# Included last, when all libraries are declared.
include(CMakePackageConfigHelpers)

# The libraries that go into libmuster.so, and what they link that is not ours.
get_property(_all GLOBAL PROPERTY MUSTER_LIBRARIES)
set(_inside)
foreach(_library ${_all})
  get_target_property(_folder ${_library} SOURCE_DIR)
  if(_folder MATCHES "^${PROJECT_SOURCE_DIR}/(common|proto)(/|$)")
    list(APPEND _inside ${_library})
  endif()
endforeach()
set(_external)
foreach(_library ${_inside})
  get_target_property(_dependencies ${_library} INTERFACE_LINK_LIBRARIES)
  foreach(_dependency ${_dependencies})
    if(TARGET ${_dependency})
      get_target_property(_aliased ${_dependency} ALIASED_TARGET)
      if(_aliased)
        set(_dependency ${_aliased})
      endif()
    endif()
    if(NOT _dependency IN_LIST _inside AND NOT _dependency STREQUAL muster_flags)
      list(APPEND _external ${_dependency})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES _external)

add_library(muster_shared SHARED)
add_library(muster::muster ALIAS muster_shared)
foreach(_library ${_inside})
  target_sources(muster_shared PRIVATE $<TARGET_OBJECTS:${_library}>)
endforeach()
set_target_properties(muster_shared PROPERTIES OUTPUT_NAME muster EXPORT_NAME muster VERSION ${PROJECT_VERSION}
                                               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX)
target_compile_features(muster_shared PUBLIC cxx_std_20)
target_include_directories(muster_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/muster>)
if(NOT MUSTER_SANITIZE)
  target_link_options(muster_shared PRIVATE -Wl,--no-undefined)
endif()
foreach(_dependency ${_external} Threads::Threads)
  if(_dependency MATCHES "^(muster_(torch|torch_cuda|nccl)|CLI11::CLI11)$")
    # The installed package finds LibTorch again, where it is on that machine; no installed header includes CLI11.
    target_link_libraries(muster_shared PUBLIC $<BUILD_INTERFACE:${_dependency}>)
  else()
    target_link_libraries(muster_shared PUBLIC ${_dependency})
  endif()
endforeach()

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/Muster)
install(TARGETS muster_shared EXPORT MusterTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
                NAMELINK_COMPONENT library)
install(EXPORT MusterTargets NAMESPACE muster:: DESTINATION ${_package} COMPONENT library)
install(DIRECTORY include/muster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN "*.h")
install(DIRECTORY common DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muster COMPONENT library FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/proto DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muster COMPONENT library
        FILES_MATCHING PATTERN "*.h")
if(MUSTER_TORCH)
  set(MUSTER_PACKAGE_TORCH_ROOT ${MUSTER_TORCH_ROOT})
endif()
configure_package_config_file(cmake/MusterConfig.cmake.in ${PROJECT_BINARY_DIR}/MusterConfig.cmake
                              INSTALL_DESTINATION ${_package} NO_SET_AND_CHECK_MACRO)
# The interfaces still move with every minor version.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MusterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MusterConfig.cmake ${PROJECT_BINARY_DIR}/MusterConfigVersion.cmake cmake/Torch.cmake
        DESTINATION ${_package} COMPONENT library)
