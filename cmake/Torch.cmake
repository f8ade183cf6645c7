# muster::torch, LibTorch's CPU side, without find_package(Torch): its own CUDA detection needs a CUDA toolkit and fails with
# CMake 3.25 and CUDA 13, while the headers and libraries in the wheels are enough. A part of the installed package too.
#
# MUSTER_VENV         bootstrap's virtual environment, where there is one: the default place
# MUSTER_TORCH_ROOT   a folder with include/ and lib/: an unpacked LibTorch zip, or site-packages/torch
file(GLOB _site LIST_DIRECTORIES true ${MUSTER_VENV}/lib/python3*/site-packages)
set(MUSTER_TORCH_ROOT "${_site}/torch" CACHE PATH "LibTorch: a folder with include/ and lib/")
if(NOT EXISTS ${MUSTER_TORCH_ROOT}/include/torch/csrc/api/include/torch/torch.h)
  message(FATAL_ERROR "No LibTorch in '${MUSTER_TORCH_ROOT}': run deploy/bootstrap, or set -DMUSTER_TORCH_ROOT")
endif()

# The version in the form of the macro TORCH_VERSION.
file(STRINGS ${MUSTER_TORCH_ROOT}/include/torch/headeronly/version.h _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM _lines REPLACE "[^0-9]" "")
list(JOIN _lines "." MUSTER_TORCH_VERSION)

if(TARGET muster_torch)
  return()
endif()
set(_torch_includes ${MUSTER_TORCH_ROOT}/include ${MUSTER_TORCH_ROOT}/include/torch/csrc/api/include)
foreach(_name c10 torch_cpu)
  add_library(muster_${_name}_so SHARED IMPORTED GLOBAL)
  set_target_properties(muster_${_name}_so PROPERTIES IMPORTED_LOCATION ${MUSTER_TORCH_ROOT}/lib/lib${_name}.so)
endforeach()
add_library(muster_torch INTERFACE)
# After the system's folders: the wheel ships headers of its own {fmt} and protobuf, whose libraries are not the ones we link.
foreach(_include ${_torch_includes})
  target_compile_options(muster_torch INTERFACE "SHELL:-idirafter ${_include}")
endforeach()
target_link_libraries(muster_torch INTERFACE muster_torch_cpu_so muster_c10_so)
add_library(muster::torch ALIAS muster_torch)
