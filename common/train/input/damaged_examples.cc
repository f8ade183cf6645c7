#include "common/train/input/damaged_examples.h"

#include <algorithm>

#include "common/base/json/utf8.h"
#include "common/base/logging.h"
#include "common/train/replica/replica_values.h"

namespace muster {

int DamageLog::Warn(const std::string& data, const std::vector<std::string>& damaged) {
  std::vector<std::string> lines;
  {
    absl::MutexLock lock(&mutex_);
    std::set<std::string>& said = logged_[data];
    for (const std::string& what : damaged) {
      if (said.size() >= kMaxNamedExamples || !said.insert(what).second) continue;
      lines.push_back(what +
                      (said.size() == kMaxNamedExamples ? "; no more of them are named" : ""));
    }
  }
  for (const std::string& line : lines)
    LogWarning("{} data: an example is damaged and left out: {}", data, line);
  return static_cast<int>(lines.size());
}

std::vector<std::string> DamagedExamples::NewOf(const std::vector<std::string>& mine) const {
  std::vector<std::string> fresh;
  for (const std::string& name : mine) {
    if (!named_.contains(name) && std::find(fresh.begin(), fresh.end(), name) == fresh.end() &&
        named_.size() + fresh.size() < kMaxNamedExamples)
      fresh.push_back(name);
  }
  return fresh;
}

absl::StatusOr<DamagedExamples::Report> DamagedExamples::Exchange(
    const std::vector<std::string>& mine) {
  log_->Warn(data_, mine);
  Report report;
  report.count = static_cast<int64_t>(mine.size());
  std::vector<std::string> fresh = NewOf(mine);
  if (communicator_ != nullptr && communicator_->size() > 1) {
    // Each replica sends one name at a time. That is enough, because each epoch has the damaged
    // examples again.
    const std::string first = fresh.empty() ? "" : fresh.front();
    MUSTER_ASSIGN_OR_RETURN(const GatheredTexts all,
                            GatherTexts(communicator_, device_, report.count, first));
    report.count = all.sum;
    fresh = NewOf(all.texts);
  }
  named_.insert(fresh.begin(), fresh.end());
  std::erase(fresh, "");
  // A file name may have any bytes, and GatherTexts may truncate a text within a character.
  for (const std::string& name : fresh) report.names.push_back(ValidUtf8(name));
  return report;
}

}  // namespace muster
