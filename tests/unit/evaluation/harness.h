// A chief's end of evaluation on a port that the kernel picks, and what it was told to do.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/evaluation/evaluation_service.h"
#include "common/rpc/server.h"
#include "evaluator/chief_link.h"

namespace muster::evaluation {

// A new folder, gone with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Long enough for a loaded machine; a wait that reaches it has failed.
inline constexpr Duration kPatience = std::chrono::seconds(20);

class TestChief {
 public:
  explicit TestChief(EvaluationRules rules = {}, const std::string& run_id = "run-a",
                     const std::string& job = "{}",
                     checkpoint::FileSystem* files = &checkpoint::PosixFileSystem());
  ~TestChief();

  // Listens again, as another chief, on the same port.
  void Restart();
  void StopServer();
  EvaluationService& service() { return *service_; }
  ChiefLinkOptions link_options() const;
  std::unique_ptr<ChiefLink> Link() const;

  // Its checkpoints are gone; pinning them fails.
  void Forget(int64_t step);
  std::vector<int64_t> pinned() const;
  std::vector<EvaluationResult> results() const;
  // Until `condition` holds.
  bool Await(const std::function<bool()>& condition) const;

 private:
  void Start(const std::string& address);

  const EvaluationRules rules_;
  const std::string run_id_, job_;
  checkpoint::FileSystem* const files_;
  int port_ = 0;
  mutable absl::Mutex mu_;
  std::vector<int64_t> pinned_ ABSL_GUARDED_BY(mu_), gone_ ABSL_GUARDED_BY(mu_);
  std::vector<EvaluationResult> results_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<EvaluationService> service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace muster::evaluation
