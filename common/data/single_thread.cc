#include "common/data/single_thread.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace muster::data {

void UseOneIntraOpThread() {
  // LibTorch sets this thread's number of threads at its first use. Triggers that now, so that it
  // does not override the value below.
  at::get_num_threads();
  // Both functions are in LibTorch and the OpenMP runtime that comes with it, but not in its
  // headers. Where one is missing (another parallel backend), only a core is lost.
  for (const char* setter : {"omp_set_num_threads", "MKL_Set_Num_Threads_Local"}) {
    if (void* symbol = dlsym(RTLD_DEFAULT, setter)) reinterpret_cast<int (*)(int)>(symbol)(1);
  }
}

}  // namespace muster::data
