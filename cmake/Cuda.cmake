# The CUDA side of the LibTorch in MUSTER_TORCH_ROOT, for Muster itself:
#
#   muster::torch_cuda   with the CUDA runtime (present also on machines without a GPU)
#   muster::nccl         the NCCL that this LibTorch uses
#
# MUSTER_CUDA_ROOT    a CUDA toolkit; empty: the wheels beside torch (site-packages/nvidia/cu13), and nothing else
# MUSTER_NCCL_ROOT    likewise (site-packages/nvidia/nccl)
#
# CUDA: the wheels lie beside torch in site-packages. Nothing else is searched: a toolkit that happens to be installed is
# perhaps of another version, and hides on this machine what is missing on the next one.
get_filename_component(_beside ${MUSTER_TORCH_ROOT} DIRECTORY)
set(MUSTER_CUDA_ROOT "" CACHE PATH "CUDA: a folder with include/cuda_runtime_api.h, instead of the wheels beside LibTorch")
set(MUSTER_NCCL_ROOT "" CACHE PATH "NCCL: a folder with include/nccl.h, instead of the wheel beside LibTorch")
set(_cuda ${MUSTER_CUDA_ROOT})
if(NOT _cuda)
  set(_cuda ${_beside}/nvidia/cu13)
endif()
set(_nccl ${MUSTER_NCCL_ROOT})
if(NOT _nccl)
  set(_nccl ${_beside}/nvidia/nccl)
endif()
foreach(_cached MUSTER_CUDA_INCLUDE MUSTER_CUDART MUSTER_NCCL_INCLUDE MUSTER_NCCL)
  unset(${_cached} CACHE)  # Roots may have changed since the last time.
endforeach()
find_path(MUSTER_CUDA_INCLUDE cuda_runtime_api.h PATHS ${_cuda}/include NO_DEFAULT_PATH)
find_library(MUSTER_CUDART NAMES libcudart.so.13 libcudart.so PATHS ${_cuda}/lib64 ${_cuda}/lib NO_DEFAULT_PATH)
find_path(MUSTER_NCCL_INCLUDE nccl.h PATHS ${_nccl}/include NO_DEFAULT_PATH)
find_library(MUSTER_NCCL NAMES libnccl.so.2 libnccl.so PATHS ${_nccl}/lib ${_nccl}/lib64 NO_DEFAULT_PATH)
if(EXISTS ${MUSTER_TORCH_ROOT}/lib/libtorch_cuda.so AND MUSTER_CUDA_INCLUDE AND MUSTER_CUDART AND MUSTER_NCCL AND MUSTER_NCCL_INCLUDE)
  set(MUSTER_HAS_CUDA ON)
else()
  set(MUSTER_HAS_CUDA OFF)
  message(STATUS "Muster: a CPU-only LibTorch, or CUDA or NCCL not found: building without the NCCL backend")
endif()
if(MUSTER_HAS_CUDA)
  foreach(_name c10_cuda torch_cuda)
    add_library(muster_${_name}_so SHARED IMPORTED GLOBAL)
    set_target_properties(muster_${_name}_so PROPERTIES IMPORTED_LOCATION ${MUSTER_TORCH_ROOT}/lib/lib${_name}.so)
  endforeach()
  add_library(muster_torch_cuda INTERFACE)
  target_include_directories(muster_torch_cuda SYSTEM INTERFACE ${MUSTER_CUDA_INCLUDE})
  # Nothing refers to libtorch_cuda.so by symbol, yet it must be loaded to register the CUDA kernels. The option is one
  # word: CMake drops a repeated -Wl,--pop-state.
  set(_lib ${MUSTER_TORCH_ROOT}/lib)
  target_link_libraries(muster_torch_cuda INTERFACE muster_torch
                        -Wl,--push-state,--no-as-needed,${_lib}/libtorch_cuda.so,${_lib}/libc10_cuda.so,--pop-state
                        muster_torch_cuda_so muster_c10_cuda_so ${MUSTER_CUDART})
  add_library(muster::torch_cuda ALIAS muster_torch_cuda)
  add_library(muster_nccl INTERFACE)
  target_include_directories(muster_nccl SYSTEM INTERFACE ${MUSTER_NCCL_INCLUDE} ${MUSTER_CUDA_INCLUDE})
  target_link_libraries(muster_nccl INTERFACE ${MUSTER_NCCL} ${MUSTER_CUDART})
  add_library(muster::nccl ALIAS muster_nccl)
endif()
