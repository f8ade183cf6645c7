#include "common/data/single_thread.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace muster::data {

void UseOneIntraOpThread() {
  // At its first use in a thread, LibTorch sets the thread's number of OpenMP threads. Triggers
  // this first use now, so that it does not override the value below.
  at::get_num_threads();
  // LibTorch and its OpenMP runtime have these functions, but no headers for them. If a function is
  // missing (with another parallel backend), only performance suffers.
  for (const char* setter : {"omp_set_num_threads", "MKL_Set_Num_Threads_Local"}) {
    if (void* symbol = dlsym(RTLD_DEFAULT, setter)) reinterpret_cast<int (*)(int)>(symbol)(1);
  }
}

}  // namespace muster::data
