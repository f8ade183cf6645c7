# In the wheel alone, beside MusterConfig.cmake (deploy/package/build_wheel.py): the headers and libraries that Debian's packages of
# abseil and nlohmann-json have elsewhere, and LibTorch in the folder of the package torch.
set(_muster_torch_root "${Muster_BIN_DIR}/../../torch")
file(GLOB _muster_absl "${_muster_lib}/libabsl_*.so.*")
foreach(_muster_target absl::status absl::statusor nlohmann_json::nlohmann_json)
  if(NOT TARGET ${_muster_target})
    add_library(${_muster_target} INTERFACE IMPORTED)
    set_target_properties(${_muster_target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_muster_include}/bundled")
    if(_muster_target MATCHES "^absl::")
      set_target_properties(${_muster_target} PROPERTIES INTERFACE_LINK_LIBRARIES "${_muster_absl}")
    endif()
  endif()
endforeach()
