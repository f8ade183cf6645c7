#include "chief/coordinator/identity_keeper.h"

#include <utility>

namespace muster::chief {

IdentityKeeper::~IdentityKeeper() {
  if (thread_.joinable()) thread_.join();
}

void IdentityKeeper::Start(const std::string& run_id, uint32_t epoch) {
  if (under_way_.exchange(true)) return;
  if (thread_.joinable()) thread_.join();  // The thread has finished its work.
  thread_ = std::thread([this, run_id, epoch] {
    on_done_({run_id, epoch, keep_ ? keep_(run_id, epoch) : absl::OkStatus()});
    under_way_ = false;
  });
}

}  // namespace muster::chief
