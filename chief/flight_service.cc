#include "chief/flight_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/flight/flight_record.h"
#include "common/rpc/server/server.h"
#include "proto/flight.grpc.pb.h"

namespace muster::chief {
namespace {

using checkpoint::JoinPath;

constexpr size_t kMaxRecordBytes = rpc::kMaxPieceBytes;
constexpr size_t kMaxQueuedBytes = 64 << 20;
constexpr char kPart[] = ".part";  // Suffix of a record that is being written.

struct Taken {
  uint64_t generation = 0;
  std::string task, text;
};

class FlightServiceImpl final : public FlightService, public proto::Flight::CallbackService {
 public:
  explicit FlightServiceImpl(FlightServiceOptions options)
      : options_(std::move(options)),
        folder_(JoinPath(options_.model_dir, "flight")),
        thread_([this] { Run(); }) {}

  ~FlightServiceImpl() override {
    {
      absl::MutexLock lock(&mu_);
      exiting_ = true;
      if (!queue_.empty())
        LogWarning("the chief dropped {} flight records: the disk is too slow", queue_.size());
      queue_.clear();
      changed_.SignalAll();
    }
    thread_.join();
  }

  grpc::Service* service() override { return this; }

  void Drain(Duration limit) override {
    const MonotonicTime until = Clock::now() + limit;
    absl::MutexLock lock(&mu_);
    while (!queue_.empty() || writing_)
      if (changed_.WaitUntil(&mu_, until)) return;
  }

  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::FlightKeepRequest* request,
                                 proto::FlightKeepReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    grpc::Status refusal = rpc::RequireDeadline(*context, "Keep");
    if (refusal.ok()) refusal = rpc::RequireSpeaker(*context, request->task());
    if (refusal.ok()) {
      reply->set_reason(Take(*request));
      reply->set_kept(reply->reason().empty());
    }
    reactor->Finish(refusal);
    return reactor;
  }

 private:
  // Returns why the record was refused, "" if it was taken.
  std::string Take(const proto::FlightKeepRequest& request) {
    if (options_.model_dir.empty()) return "the job has no model_dir";
    if (request.cluster_digest() != options_.cluster_digest) return "another cluster";
    if (request.run_id() != options_.run_id()) return "another run";
    if (!options_.tasks.contains(request.task())) return request.task() + " is no member";
    if (request.generation() == 0) return "no generation";
    // Only the newest generations are kept, so such a record would displace records of real
    // generations.
    if (request.generation() > options_.newest()) return "a generation that was never formed";
    if (request.record().size() > kMaxRecordBytes) return "the record is too large";
    absl::MutexLock lock(&mu_);
    if (queued_bytes_ + request.record().size() > kMaxQueuedBytes)
      return "the chief's disk does not keep up";
    queued_bytes_ += request.record().size();
    queue_.push_back({request.generation(), request.task(), request.record()});
    changed_.SignalAll();
    return "";
  }

  void Run() {
    absl::MutexLock lock(&mu_);
    for (;;) {
      while (queue_.empty() && !exiting_) changed_.Wait(&mu_);
      if (queue_.empty()) return;
      const Taken taken = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= taken.text.size();
      writing_ = true;
      mu_.Unlock();
      const absl::Status written = Write(taken);
      mu_.Lock();
      writing_ = false;
      changed_.SignalAll();
      if (!written.ok())
        LogWarning("the flight record of {} is not kept: {}", taken.task, Message(written));
    }
  }

  absl::Status Write(const Taken& taken) {
    if (options_.fence) MUSTER_RETURN_IF_ERROR(options_.fence());
    checkpoint::FileSystem& files = *options_.files;
    if (!std::exchange(cleaned_, true)) RemoveParts();
    const std::string folder = JoinPath(folder_, FlightFolder(taken.generation));
    MUSTER_RETURN_IF_ERROR(checkpoint::MakeDirectories(files, folder));
    const std::string path = JoinPath(folder, FlightFile(taken.task)), part = path + kPart;
    MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(part));
    absl::Status status = file->Append(taken.text);
    if (status.ok()) status = file->Close();
    if (status.ok()) status = files.Rename(part, path);
    if (!status.ok()) {
      (void)files.Remove(part);
      return status;
    }
    if (taken.generation <= newest_) return absl::OkStatus();
    newest_ = taken.generation;
    LogInfo("the flight records of generation {} are in {}: `muster explain {}` reports the events",
            GenerationText(newest_), folder, options_.model_dir);
    return Prune();
  }

  // Removes the partial file of a chief that was killed while it wrote. A file that cannot be
  // removed does no harm.
  void RemoveParts() {
    checkpoint::FileSystem& files = *options_.files;
    const auto folders = files.List(folder_);
    if (!folders.ok()) return;
    for (const std::string& name : *folders) {
      const std::string folder = JoinPath(folder_, name);
      if (GenerationOfFolder(name) == 0) continue;
      const auto records = files.List(folder);
      if (!records.ok()) continue;
      for (const std::string& record : *records)
        if (record.ends_with(kPart)) (void)files.Remove(JoinPath(folder, record));
    }
  }

  absl::Status Prune() {
    checkpoint::FileSystem& files = *options_.files;
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder_));
    std::vector<uint64_t> generations;
    for (const std::string& name : names)
      if (const uint64_t generation = GenerationOfFolder(name)) generations.push_back(generation);
    std::sort(generations.rbegin(), generations.rend());
    int kept_files = 0, kept = 0;
    for (const uint64_t generation : generations) {
      const std::string folder = JoinPath(folder_, FlightFolder(generation));
      const auto records = files.List(folder);
      const int count = records.ok() ? static_cast<int>(records->size()) : 0;
      const bool stays = kept == 0 || (kept < options_.keep_generations &&
                                       kept_files + count <= options_.keep_files);
      if (!stays) {
        MUSTER_RETURN_IF_ERROR(files.Remove(folder));
        continue;
      }
      ++kept;
      kept_files += count;
    }
    return absl::OkStatus();
  }

  const FlightServiceOptions options_;
  const std::string folder_;
  uint64_t newest_ = 0;   // Used only by the thread.
  bool cleaned_ = false;  // Used only by the thread.
  absl::Mutex mu_;
  CondVar changed_;
  std::deque<Taken> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last member, because it uses all of the above.
};

}  // namespace

std::unique_ptr<FlightService> FlightService::Make(FlightServiceOptions options) {
  return std::make_unique<FlightServiceImpl>(std::move(options));
}

}  // namespace muster::chief
