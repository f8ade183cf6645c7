#include "deploy/commands/inspection/trace_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/files/created_files.h"
#include "common/base/random_name.h"
#include "common/checkpoint/files/file_system.h"
#include "common/flight/trace_file.h"
#include "common/rpc/retry.h"
#include "deploy/status/status_client.h"
#include "muster/json.h"
#include "proto/trace.grpc.pb.h"

namespace muster {
namespace {

using checkpoint::JoinPath;

// The chief answers at most this long after the limit.
constexpr Duration kAfterLimit = std::chrono::seconds(10);
constexpr Duration kReadDeadline = std::chrono::seconds(10);
// Timeout for a chief to accept a request. A chief polls its model_dir every second.
constexpr Duration kTakes = std::chrono::seconds(5);
constexpr Duration kTakesOther = std::chrono::seconds(3);  // For another pending request.
constexpr Duration kPoll = std::chrono::milliseconds(50);
constexpr char kRunHasEnded[] = "the run has ended";

absl::Status StatusOfCall(const grpc::Status& status, const std::string& address) {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
      status.error_code() == grpc::StatusCode::PERMISSION_DENIED)
    return ConfigurationError(
        fmt::format("{} ({})", status::RequiresIdentity(address), status.error_message()));
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
    return ConfigurationError(
        fmt::format("the chief at {} makes no traces: it is of another version "
                    "of Muster, or is not a chief",
                    address));
  if (rpc::IsUnreachable(status))
    return PeerLost(
        fmt::format("cannot reach the chief at {}: {}", address, rpc::WhyUnreachable(status)));
  return rpc::FromGrpc(status, fmt::format("the chief at {} made no trace", address));
}

absl::StatusOr<std::string> ReadAll(proto::Trace::Stub* stub, const proto::TraceRecordReply& made,
                                    const std::string& address) {
  std::string text;
  while (static_cast<int64_t>(text.size()) < made.size()) {
    proto::TraceReadRequest request;
    request.set_id(made.id());
    request.set_offset(static_cast<int64_t>(text.size()));
    proto::TraceReadReply reply;
    const grpc::Status status = stub->Read(rpc::WithDeadline(kReadDeadline).get(), request, &reply);
    if (!status.ok()) return StatusOfCall(status, address);
    if (reply.piece().empty())
      return PeerLost(fmt::format("the chief at {} sent only {} of {} bytes of the trace", address,
                                  text.size(), made.size()));
    text += reply.piece();
  }
  return text;
}

bool IsThere(const std::string& path) {
  const auto there = checkpoint::PosixFileSystem().Exists(path);
  return there.ok() && *there;
}

// Blocks until `done` returns true. Returns false after `limit`.
bool Await(Duration limit, const std::function<bool()>& done) {
  const MonotonicTime until = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

// Links the file `part` as `path`. Unlike a rename, this does not replace an existing file, which
// is a request of another process. Returns AlreadyExists in that case.
absl::Status Publish(const std::string& part, const std::string& path) {
  if (link(part.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno == EEXIST) return absl::AlreadyExistsError("another request waits");
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
    return absl::InternalError(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  // The file system has no hard links.
  if (IsThere(path)) return absl::AlreadyExistsError("another request waits");
  return checkpoint::PosixFileSystem().Rename(part, path);
}

absl::Status WritePart(const std::string& folder, const std::string& part, const Json& request) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  MUSTER_RETURN_IF_ERROR(checkpoint::MakeDirectories(files, folder));
  MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(part));
  MUSTER_RETURN_IF_ERROR(file->Append(Dump(request) + "\n"));
  return file->Close();
}

absl::Status WriteRequest(const std::string& folder, const std::string& id,
                          const WantedTrace& wanted) {
  const std::string part = JoinPath(folder, "request-" + id + ".part");
  const std::string path = JoinPath(folder, kTraceRequestFile);
  absl::Status status =
      WritePart(folder, part,
                {{"id", id}, {"steps", wanted.steps}, {"limit_seconds", Seconds(wanted.limit)}});
  if (status.ok()) {
    // A running chief removes the other request when it accepts it.
    Await(kTakesOther, [&] { return !absl::IsAlreadyExists(status = Publish(part, path)); });
  }
  (void)checkpoint::PosixFileSystem().Remove(part);
  if (absl::IsAlreadyExists(status))
    return PeerLost(
        fmt::format("another request is pending in {}, and no chief accepted it within {:g} s",
                    path, Seconds(kTakesOther)));
  return status.ok() ? status : ConfigurationError(Message(status));
}

// Returns whether the chief has not accepted this request yet. `path` may now be another process's
// request.
bool Waits(const std::string& path, const std::string& id) {
  const auto text = checkpoint::ReadFile(checkpoint::PosixFileSystem(), path);
  return text.ok() && text->find('"' + id + '"') != std::string::npos;
}

bool RunHasEnded(const std::string& model_dir) {
  return IsThere(JoinPath(model_dir, "result.json"));
}

absl::StatusOr<GivenTrace> LastTrace(const std::string& model_dir, const std::string& why) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  const std::string folder = JoinPath(model_dir, kTraceFolder);
  std::vector<std::string> names = files.List(folder).value_or(std::vector<std::string>());
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with(kTracePrefix) || !name.ends_with(".json");
  });
  if (names.empty())
    return ConfigurationError(
        fmt::format("{}, and {} has no trace: request one while the job runs", why, model_dir));
  const std::string name = *std::max_element(names.begin(), names.end(),
                                             [&](const std::string& a, const std::string& b) {
                                               return std::pair(WrittenAt(JoinPath(folder, a)), a) <
                                                      std::pair(WrittenAt(JoinPath(folder, b)), b);
                                             });
  GivenTrace given;
  MUSTER_ASSIGN_OR_RETURN(given.text, checkpoint::ReadFile(files, JoinPath(folder, name)));
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(given.text, JoinPath(folder, name)));
  const Json other = json.value("otherData", Json::object());
  given.missing = other.value("missing", std::vector<std::string>());
  for (const Json& task : other.value("tasks", Json::array())) {
    given.tasks.push_back(task.value("task", ""));
    const int64_t first = task.value("first_step", int64_t{0});
    if (first > 0 && (given.first_step == 0 || first < given.first_step)) given.first_step = first;
    given.last_step = std::max(given.last_step, task.value("last_step", int64_t{0}));
  }
  given.note = fmt::format("{}: this is its last trace", why);
  return given;
}

absl::StatusOr<GivenTrace> TakeAnswer(const std::string& folder, const std::string& path) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  MUSTER_ASSIGN_OR_RETURN(const std::string text, checkpoint::ReadFile(files, path));
  (void)files.Remove(path);
  MUSTER_ASSIGN_OR_RETURN(const Json answer, ParseJson(text, path));
  if (answer.contains("error")) {
    const ExitCode code = ExitCodeFromInt(answer.value("exit_code", 0));
    return StatusFor(code == ExitCode::kDone ? ExitCode::kRetryable : code,
                     answer.value("error", ""));
  }
  GivenTrace given;
  given.first_step = answer.value("first_step", int64_t{0});
  given.last_step = answer.value("last_step", int64_t{0});
  given.tasks = answer.value("tasks", std::vector<std::string>());
  given.missing = answer.value("missing", std::vector<std::string>());
  if (given.tasks.empty()) return given;
  const std::string file = answer.value("file", "");
  if (file.empty() || file.find('/') != std::string::npos)
    return StatusFor(ExitCode::kRetryable, "the chief could not write the trace; see its log");
  MUSTER_ASSIGN_OR_RETURN(given.text, checkpoint::ReadFile(files, JoinPath(folder, file)));
  return given;
}

}  // namespace

absl::StatusOr<GivenTrace> TraceFromChief(const std::string& address,
                                          const rpc::ChannelOptions& options,
                                          const WantedTrace& wanted) {
  MUSTER_ASSIGN_OR_RETURN(const auto channel, rpc::MakeChannel(address, options));
  const auto stub = proto::Trace::NewStub(channel);
  proto::TraceRecordRequest request;
  request.set_steps(wanted.steps);
  request.set_limit_ms(Milliseconds(wanted.limit));
  proto::TraceRecordReply reply;
  const grpc::Status status =
      stub->Record(rpc::WithDeadline(wanted.limit + kAfterLimit).get(), request, &reply);
  if (!status.ok()) return StatusOfCall(status, address);
  GivenTrace given;
  given.first_step = reply.first_step();
  given.last_step = reply.last_step();
  given.tasks.assign(reply.tasks().begin(), reply.tasks().end());
  given.missing.assign(reply.missing().begin(), reply.missing().end());
  MUSTER_ASSIGN_OR_RETURN(given.text, ReadAll(stub.get(), reply, address));
  return given;
}

absl::StatusOr<GivenTrace> TraceFromModelDir(const std::string& model_dir,
                                             const WantedTrace& wanted) {
  if (RunHasEnded(model_dir)) return LastTrace(model_dir, kRunHasEnded);
  if (!IsThere(JoinPath(model_dir, "owner.json")))
    return LastTrace(model_dir, "no run has begun there");
  AddJobFolder(model_dir);  // Files in it are as private as the chief's.
  const std::string folder = JoinPath(model_dir, kTraceFolder), id = RandomName();
  const std::string request = JoinPath(folder, kTraceRequestFile);
  MUSTER_RETURN_IF_ERROR(WriteRequest(folder, id, wanted));
  if (!Await(kTakes, [&] { return !Waits(request, id); })) {
    (void)checkpoint::PosixFileSystem().Remove(request);
    if (RunHasEnded(model_dir)) return LastTrace(model_dir, kRunHasEnded);
    // An earlier trace must not be shown as a current one.
    return PeerLost(
        fmt::format("no chief accepted the request within {:g} s, and the run in {} has not ended: "
                    "its chief is stopped or busy, or uses another folder",
                    Seconds(kTakes), model_dir));
  }
  const std::string answer = JoinPath(folder, TraceAnswerFile(id));
  if (!Await(wanted.limit + kAfterLimit, [&] { return IsThere(answer); }))
    return PeerLost("the chief accepted the request but did not answer: it may have ended");
  return TakeAnswer(folder, answer);
}

}  // namespace muster
