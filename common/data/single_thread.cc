#include "common/data/single_thread.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace muster::data {

void UseOneIntraOpThread() {
  at::get_num_threads();  // LibTorch sets this thread's number at its first use, so not after us
  // Both are in LibTorch and in the OpenMP runtime that comes with it, neither is in its headers.
  // Where one is missing (another parallel backend) nothing is lost but a core.
  for (const char* setter : {"omp_set_num_threads", "MKL_Set_Num_Threads_Local"}) {
    if (void* symbol = dlsym(RTLD_DEFAULT, setter)) reinterpret_cast<int (*)(int)>(symbol)(1);
  }
}

}  // namespace muster::data
