#include "chief/shards/slots_file.h"

#include <algorithm>
#include <utility>

#include "common/checkpoint/safetensors.h"

namespace muster::chief {

absl::StatusOr<std::unique_ptr<SlotsFile>> SlotsFile::Make(
    const std::vector<checkpoint::TensorInfo>& tensors,
    std::shared_ptr<checkpoint::StagedFile> file) {
  MUSTER_ASSIGN_OR_RETURN(const checkpoint::SafetensorsPlan plan,
                          checkpoint::PlanSafetensors(tensors));
  auto slots = std::make_unique<SlotsFile>();
  slots->file_ = std::move(file);
  slots->begins_.resize(tensors.size());
  auto next = static_cast<int64_t>(plan.head.size());
  for (const size_t tensor : plan.order) {
    slots->begins_[tensor] = next;
    next += static_cast<int64_t>(tensors[tensor].bytes());
  }
  for (const checkpoint::TensorInfo& tensor : tensors)
    slots->bytes_.push_back(static_cast<int64_t>(tensor.bytes()));
  MUSTER_RETURN_IF_ERROR(slots->file_->WriteAt(0, plan.head));
  // A tensor without elements receives no Count, so its step stays 0.
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].shape.empty()) slots->Put(t, 0, std::string(tensors[t].bytes(), '\0'));
  return slots;
}

void SlotsFile::Put(size_t tensor, int64_t begin, std::string_view bytes) {
  const absl::Status written = file_->WriteAt(begins_[tensor] + begin, bytes);
  absl::MutexLock lock(&mu_);
  written_.Update(written);
}

std::string SlotsFile::Gather(size_t tensor, int64_t begin, std::string_view bytes) {
  absl::MutexLock lock(&mu_);
  Gathered& gathered = gathered_[tensor];
  if (gathered.bytes.empty()) {
    gathered.left = bytes_[tensor];
    gathered.bytes.resize(static_cast<size_t>(gathered.left));
  }
  std::copy(bytes.begin(), bytes.end(), gathered.bytes.begin() + begin);
  gathered.left -= static_cast<int64_t>(bytes.size());
  if (gathered.left > 0) return "";
  std::string whole = std::move(gathered.bytes);
  gathered_.erase(tensor);
  return whole;
}

void SlotsFile::Count(size_t tensor, int64_t value) {
  absl::MutexLock lock(&mu_);
  int64_t& count = counts_[tensor];
  count = std::max(count, value);
}

absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> SlotsFile::Complete() {
  std::map<size_t, int64_t> counts;
  {
    absl::MutexLock lock(&mu_);
    counts = counts_;
  }
  for (const auto& [tensor, count] : counts) {
    const auto value = static_cast<float>(count);
    Put(tensor, 0, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  absl::MutexLock lock(&mu_);
  MUSTER_RETURN_IF_ERROR(written_);
  return std::move(file_);
}

}  // namespace muster::chief
