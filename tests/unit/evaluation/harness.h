// The chief's evaluation service, for tests, on a port that the kernel picks. Records the calls of
// the service.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/evaluation/evaluation_service.h"
#include "common/rpc/server/server.h"
#include "evaluator/chief_link.h"

namespace muster::evaluation {

// A new folder. The destructor removes it.
class Folder {
 public:
  Folder();
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The limit of a wait, long enough for a busy machine.
inline constexpr Duration kPatience = std::chrono::minutes(1);
// Rules by which no evaluator is lost by its silence within kPatience. Another process may take the
// place of one that has been silent for 10 s.
inline chief::EvaluationRules PatientRules() {
  chief::EvaluationRules rules;
  rules.heartbeat = 2 * kPatience;
  rules.suspect = std::chrono::seconds(10);
  return rules;
}

class TestChief {
 public:
  explicit TestChief(chief::EvaluationRules rules = PatientRules(),
                     const std::string& run_id = "run-a", const std::string& job = "{}",
                     checkpoint::FileSystem* files = &checkpoint::PosixFileSystem());
  ~TestChief();

  // Replaces the service by that of another chief, on the same port.
  void Restart();
  void StopServer();
  chief::EvaluationService& service() { return *service_; }
  evaluator::ChiefLinkOptions link_options() const;
  std::unique_ptr<evaluator::ChiefLink> Link() const;

  // Simulates the deletion of the checkpoint of this step. Pinning it then fails.
  void Forget(int64_t step);
  std::vector<int64_t> pinned() const;
  std::vector<chief::EvaluationResult> results() const;

 private:
  void Start(const std::string& address);

  const chief::EvaluationRules rules_;
  const std::string run_id_, job_;
  checkpoint::FileSystem* const files_;
  int port_ = 0;
  mutable absl::Mutex mu_;
  std::vector<int64_t> pinned_ ABSL_GUARDED_BY(mu_), gone_ ABSL_GUARDED_BY(mu_);
  std::vector<chief::EvaluationResult> results_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<chief::EvaluationService> service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace muster::evaluation
