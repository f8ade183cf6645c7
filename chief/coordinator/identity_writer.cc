#include "chief/coordinator/identity_writer.h"

namespace muster::chief {

IdentityWriter::~IdentityWriter() {
  if (thread_.joinable()) thread_.join();
}

void IdentityWriter::Start(const std::string& run_id, uint32_t term) {
  if (under_way_.exchange(true)) return;
  if (thread_.joinable()) thread_.join();  // The thread has finished its work.
  thread_ = std::thread([this, run_id, term] {
    on_done_({run_id, term, write_ ? write_(run_id, term) : absl::OkStatus()});
    under_way_ = false;
  });
}

}  // namespace muster::chief
